//! `WINDLASS_MUTANTS=1` compiles the deliberate faults of `src/mutant.rs` in, for the tests that must find them.

fn main() {
    println!("cargo::rerun-if-env-changed=WINDLASS_MUTANTS");
    #[expect(
        clippy::disallowed_methods,
        reason = "a build script has no other settings"
    )]
    let wanted = std::env::var("WINDLASS_MUTANTS").is_ok_and(|value| value == "1");
    if wanted {
        println!("cargo::rustc-cfg=windlass_mutants");
    }
}
