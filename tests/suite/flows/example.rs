//! The example `flow`, run as a program, with fewer files.

use crate::support::example::run;

#[test]
fn a_flow_completes_though_its_workers_are_killed() {
    let said = run(env!("CARGO_BIN_EXE_flow"), &["--files", "12"]);
    let expected = "files: 12  read: 12  workers killed: 2  lines: 78\n\
                    web: approved  published: upload, index  undone: nothing\n\
                    print: refused  published: nothing  undone: index, upload\n";
    assert_eq!(said, (Some(0), expected.to_owned()));
}
