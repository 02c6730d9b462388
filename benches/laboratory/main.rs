//! The program of the laboratory; see `benches/laboratory/mod.rs`.

fn main() -> std::process::ExitCode {
    windlass_internal::laboratory::main()
}
