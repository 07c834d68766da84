//! How this program is called from a shell: by its name where that is on `PATH`, else by its path.

use std::env;
use std::path::{Path, PathBuf};

/// The word to type for this program.
pub fn word() -> String {
    let path = env::current_exe().unwrap_or_else(|_| "moneta".into());
    let folders = env::var_os("PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    call(&path, &folders, env::current_dir().ok().as_deref())
}

fn call(program: &Path, folders: &[PathBuf], here: Option<&Path>) -> String {
    let name = program.file_name().unwrap_or_default();
    let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    // The first of that name is what the shell takes.
    if found.and_then(|found| found.canonicalize().ok()).is_some_and(|found| found == program) {
        return name.to_string_lossy().into_owned();
    }
    let below = here.and_then(|here| program.strip_prefix(here).ok()).filter(|path| path.components().count() > 1);
    below.unwrap_or(program).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_called_by_the_shortest_word_that_works() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().canonicalize().expect("it is there");
        let (bin, other) = (folder.join("bin"), folder.join("other"));
        for folder in [&bin, &other] {
            std::fs::create_dir(folder).expect("a folder");
            std::fs::write(folder.join("moneta"), "").expect("a file");
        }
        let program = bin.join("moneta");
        assert_eq!(call(&program, &[bin.clone(), other.clone()], None), "moneta");
        assert_eq!(
            call(&program, &[other.clone(), bin.clone()], Some(&folder)),
            "bin/moneta",
            "the other one is found"
        );
        assert_eq!(call(&program, &[], Some(&other)), program.display().to_string());
        assert_eq!(call(&program, &[], Some(&bin)), program.display().to_string(), "a bare name is looked for on PATH");
    }
}
