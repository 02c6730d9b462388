//! The example `policies`, run as a program, with fewer users.

use crate::support::example::run;

#[test]
fn nobody_is_notified_twice() {
    let (code, said) = run(
        env!("CARGO_BIN_EXE_policies"),
        &["--users", "400", "--kill-at", "60"],
    );
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    let [users, retried, timed_out] = lines[..] else {
        panic!("{said}")
    };
    let start = "users: 400  notified: 400  notified twice: 0  killed after: ";
    let (killed, resumed) = users
        .strip_prefix(start)
        .and_then(|rest| rest.split_once("  resumed at: "))
        .expect(users);
    let [killed, resumed] = [killed, resumed].map(|number| number.parse::<u32>().unwrap());
    assert!((60..=200).contains(&killed), "{users}");
    assert_eq!(resumed, killed + 1);
    assert!(retried.starts_with("failed attempts: 2 (the other side is busy; "));
    assert!(timed_out.starts_with("timed out: 1  ") && timed_out.ends_with("blamed: 0"));
}
