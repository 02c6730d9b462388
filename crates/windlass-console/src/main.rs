//! The program `windlass`; see [`windlass_console::cli`].

fn main() -> std::process::ExitCode {
    windlass_console::cli::main()
}
