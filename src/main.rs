//! The program `windlass`; see [`windlass::cli`].

fn main() -> std::process::ExitCode {
    windlass::cli::main()
}
