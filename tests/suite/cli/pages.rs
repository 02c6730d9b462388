//! Completions and manual pages.

use crate::support::program::Windlass;

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = Windlass::new(&["completions", shell]).run();
        assert!(said.is_done(), "{said:?}");
        for word in ["windlass", "doctor", "--database"] {
            let word = word.trim_start_matches('-');
            assert!(said.out.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(Windlass::new(&["completions", "cmd"]).run().code, Some(2));
}

#[test]
fn every_command_has_its_page() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man/man1");
    let said = Windlass::new(&["man", pages.to_str().unwrap()]).run();
    assert!(said.is_done() && said.out.is_empty(), "{said:?}");
    for page in [
        "windlass",
        "windlass-doctor",
        "windlass-failed-retry",
        "windlass-queues-pause",
    ] {
        let text = std::fs::read_to_string(pages.join(format!("{page}.1"))).unwrap();
        assert!(text.contains(".SH NAME"), "{page}: {text}");
    }
    let said = Windlass::new(&["man", "/dev/null/x"]).run();
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("/dev/null/x"), "{}", said.err);
}
