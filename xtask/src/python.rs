//! The Python package, tested as it is in the sources, with the library that the workspace's own build made:
//! no wheel is built and the engine is not compiled again. Where Python, or a package that the tests need,
//! cannot be had, it says so.

use crate::clients::{environment, limited};
use crate::run::{Tally, root};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Seconds that getting the tests' packages may take, and a step of the tests.
const GET_SECONDS: &str = "300";
const RUN_SECONDS: &str = "300";

pub(crate) fn step(tally: &mut Tally) {
    if !tally.step("build of the Python package", &mut crate::tools::build()) {
        return;
    }
    let (sources, base) = (root().join("bindings/python"), root().join("target/python"));
    let needed = sources.join("tests/requirements.txt");
    let Some(python) = environment(&base.join("venv"), GET_SECONDS, &["-r", &needed.to_string_lossy()])
    else {
        println!("Python, or what its tests need, cannot be had here: the Python package is NOT TESTED");
        return;
    };
    let packages = base.join("packages");
    if !tally.check("the Python package is laid out", || laid_out(&sources, &packages)) {
        return;
    }
    let said = sources.join("README.md");
    let (tests, typed) = (sources.join("tests"), sources.join("tests/typed.py"));
    let of = |words: &str| words.split(' ').map(PathBuf::from).collect::<Vec<_>>();
    for (name, args) in [
        ("tests", [of("-m pytest -q -p no:cacheprovider"), vec![tests]].concat()),
        ("examples of its README", [of("-m doctest"), vec![said]].concat()),
        ("examples of its modules", of("-m pytest -q -p no:cacheprovider --doctest-modules siltstone")),
        ("types", of("-m mypy --strict -p siltstone")),
        ("types of its callers", [of("-m mypy --strict"), vec![typed]].concat()),
        ("type stubs beside the library", of("-m mypy.stubtest --ignore-disjoint-bases siltstone")),
    ] {
        let mut run = limited(RUN_SECONDS, &python);
        run.args(args).current_dir(&packages).env("PYTHONPATH", &packages).env("MYPYPATH", &packages);
        run.env("PYTHONDONTWRITEBYTECODE", "1").env("HYPOTHESIS_STORAGE_DIRECTORY", base.join("hypothesis"));
        tally.step(&format!("Python: {name}"), &mut run);
    }
}

/// Copies the package's files, and the library under the name that Python looks for; what failed.
fn laid_out(sources: &Path, packages: &Path) -> Vec<String> {
    let copy = || -> io::Result<()> {
        let package = packages.join("siltstone");
        let _ = fs::remove_dir_all(packages);
        fs::create_dir_all(&package)?;
        for entry in fs::read_dir(sources.join("python/siltstone"))? {
            let entry = entry?;
            // Not what Python, or a wheel that was built there, left beside them.
            if entry.file_type()?.is_file() && entry.path().extension().is_none_or(|kind| kind != "so") {
                fs::copy(entry.path(), package.join(entry.file_name()))?;
            }
        }
        let library = root().join("target/debug/deps/lib_siltstone.so");
        fs::copy(library, package.join("_siltstone.abi3.so")).map(drop)
    };
    copy().err().map(|why| why.to_string()).into_iter().collect()
}
