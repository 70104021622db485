//! The parts of a release: the crate, the wheel and source distribution for Python, tarballs of the C library
//! and of the command line. Each is built, then used as users would from an environment that has nothing of
//! this workspace. Nothing is uploaded: the last lines say what to upload, and how.
//!
//! The version is that of the workspace (`Cargo.toml`); everything else takes it from there, or is checked
//! here.

use crate::c;
use crate::clients::{done, environment, limited};
use crate::run::{Tally, cargo, command, root};
use std::fs;
use std::path::{Path, PathBuf};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Seconds that fetching may take, and building.
const GET_SECONDS: &str = "300";
const BUILD_SECONDS: &str = "1800";

pub(crate) fn step(tally: &mut Tally) {
    let out = root().join("target/release-files");
    let _ = fs::remove_dir_all(&out);
    tally.check("versions agree", versions);
    tally.check("a place for the files", || {
        fs::create_dir_all(&out).err().iter().map(ToString::to_string).collect()
    });
    crate_package(tally, &out);
    python(tally, &out);
    tarballs(tally, &out);
    to_upload(tally, &out);
}

/// Where the version is said a second time, and what is said of it.
fn versions() -> Vec<String> {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap_or_default();
    let mut wrong = Vec::new();
    if !read("Cargo.toml").contains(&format!("siltstone = {{ path = \"engine\", version = \"{VERSION}\" }}"))
    {
        wrong.push(format!("Cargo.toml: the dependency on the engine does not name version {VERSION}"));
    }
    wrong
}

/// Why what was built here must not be uploaded, beside steps that failed. It may be built all the same, to
/// see that it can.
fn hindrances() -> Vec<String> {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap_or_default();
    let mut all = Vec::new();
    let is_section =
        |line: &str| line.split([' ', ',']).nth(1) == Some(VERSION) && !line.contains("not released");
    if !read("CHANGELOG.md").lines().any(|line| line.starts_with("## ") && is_section(line)) {
        all.push(format!("CHANGELOG.md does not say that {VERSION} is released, and when"));
    }
    if read("Cargo.toml").contains("publish = false") {
        all.push("Cargo.toml says `publish = false`".into());
    }
    let changed = command("git", "status --porcelain").output().map(|out| out.stdout).unwrap_or_default();
    if !changed.is_empty() {
        all.push("files here are not committed".into());
    }
    all
}

/// The library as crates.io has it: cargo unpacks and builds it; then a program that depends on it alone.
fn crate_package(tally: &mut Tally, out: &Path) {
    if !tally.step("crate", &mut cargo("package -p siltstone --allow-dirty")) {
        return;
    }
    let name = format!("siltstone-{VERSION}.crate");
    let (packed, user) = (root().join("target/package").join(&name), out.join("check/crate"));
    tally.check("a program that depends on the crate", || {
        let lay = || -> std::io::Result<()> {
            fs::copy(&packed, out.join(&name))?;
            fs::create_dir_all(user.join("src"))?;
            let manifest = format!(
                "[package]\nname = \"user\"\nedition = \"2024\"\n[workspace]\n[dependencies]\nsiltstone = {{ path = \"siltstone-{VERSION}\" }}\n"
            );
            fs::write(user.join("Cargo.toml"), manifest)?;
            let main = "fn main() -> siltstone::Result<()> {\n    let db = siltstone::Db::open(\"db\")?;\n    \
                        db.put(\"silt\", \"settles\")?;\n    assert_eq!(db.get(\"silt\")?.unwrap(), b\"settles\");\n    Ok(())\n}\n";
            fs::write(user.join("src/main.rs"), main)
        };
        if let Err(why) = lay() {
            return vec![why.to_string()];
        }
        let mut unpack = command("tar", "-xzf");
        let mut run = cargo("run --quiet");
        run.env_remove("CARGO_TARGET_DIR").current_dir(&user);
        let ok = done(unpack.arg(&packed).current_dir(&user)) && done(&mut run);
        if ok { Vec::new() } else { vec!["it does not run".into()] }
    });
}

/// Builds the wheel for CPython 3.9 and later; its file.
pub(crate) fn wheel(tally: &mut Tally, maturin: &Path, out: &Path) -> Option<PathBuf> {
    let mut build = limited(BUILD_SECONDS, maturin);
    build
        .args(["build", "--release", "--quiet", "--out"])
        .arg(out)
        .current_dir(root().join("bindings/python"));
    tally.step("wheel", &mut build).then(|| found(out, ".whl")).flatten()
}

fn found(dir: &Path, end: &str) -> Option<PathBuf> {
    let files = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    files.into_iter().find(|path| path.to_string_lossy().ends_with(end))
}

/// Wheel and source distribution; each is installed alone and runs the README's examples.
fn python(tally: &mut Tally, out: &Path) {
    let check = out.join("check");
    let mut python = None;
    tally.check("maturin", || {
        python = environment(&check.join("maturin"), BUILD_SECONDS, &["maturin>=1.9,<2"]);
        if python.is_some() { Vec::new() } else { vec!["it cannot be installed".into()] }
    });
    let Some(python) = python else { return };
    let maturin = python.with_file_name("maturin");
    let Some(wheel) = wheel(tally, &maturin, out) else { return };
    let mut sources = limited(BUILD_SECONDS, &maturin);
    sources.args(["sdist", "--out"]).arg(out).current_dir(root().join("bindings/python"));
    if !tally.step("source distribution", &mut sources) {
        return;
    }
    let Some(sources) = found(out, ".tar.gz") else { return };
    for (what, file) in [("wheel", wheel), ("source distribution", sources)] {
        let file = file.to_string_lossy().into_owned();
        let place = check.join(what.replace(' ', "-"));
        let mut python = None;
        tally.check(&format!("install of the {what} into an empty environment"), || {
            python = environment(&place, BUILD_SECONDS, &[&file, "pyarrow", "numpy"]);
            if python.is_some() { Vec::new() } else { vec!["it cannot be installed".into()] }
        });
        let Some(python) = python else { continue };
        let mut run = limited(GET_SECONDS, python);
        run.args(["-m", "doctest"]).arg(root().join("bindings/python/README.md")).current_dir(&place);
        tally.step(&format!("the README's examples with the {what}"), &mut run);
    }
}

/// The C library and the command line, each of which is unpacked elsewhere and used.
fn tarballs(tally: &mut Tally, out: &Path) {
    let (built, machine) = (root().join("target/release"), std::env::consts::ARCH);
    let names = ["siltstone-c", "siltstone"].map(|name| format!("{name}-{VERSION}-{machine}-linux"));
    let stage = out.join("check/stage");
    // Apart: the command line switches on more of the engine.
    let laid = tally.step("C library", &mut cargo("build --release -p siltstone-c"))
        && tally.check("layout of the C library", || c::laid_out(&built, &stage.join(&names[0])))
        && tally.step("command line", &mut cargo("build --release -p siltstone-cli"));
    let laid = laid
        && tally.check("layout of the command line, licences", || {
            let bin = stage.join(&names[1]).join("bin");
            let mut wrong = Vec::new();
            let put = fs::create_dir_all(&bin)
                .and_then(|()| fs::copy(built.join("siltstone"), bin.join("siltstone")));
            wrong.extend(put.err().map(|why| why.to_string()));
            for (name, licence) in
                names.iter().flat_map(|name| [(name, "LICENSE-MIT"), (name, "LICENSE-APACHE")])
            {
                let put = fs::copy(root().join(licence), stage.join(name).join(licence));
                wrong.extend(put.err().map(|why| why.to_string()));
            }
            wrong
        });
    if !laid {
        return;
    }
    let elsewhere = out.join("check/elsewhere");
    for name in &names {
        let file = out.join(format!("{name}.tar.gz"));
        let mut pack = command("tar", "-czf");
        tally.step(&format!("{name}.tar.gz"), pack.arg(&file).arg("-C").arg(&stage).arg(name));
        let mut unpack = command("tar", "-xzf");
        let _ = fs::create_dir_all(&elsewhere);
        tally.step(&format!("{name}.tar.gz, unpacked"), unpack.arg(&file).arg("-C").arg(&elsewhere));
    }
    let mut version =
        command(&elsewhere.join(&names[1]).join("bin/siltstone").to_string_lossy(), "--version");
    tally.step("the command line, unpacked", &mut version);
    let place = c::Place {
        base: out.join("check/c"),
        prefix: elsewhere.join(&names[0]),
        sources: root().join("bindings/c"),
    };
    tally.check("a place for programs in C", || {
        fs::create_dir_all(&place.base).err().iter().map(ToString::to_string).collect()
    });
    place.tours(tally);
}

/// What there is, and where it goes.
fn to_upload(tally: &Tally, out: &Path) {
    let mut hindrances = hindrances();
    if tally.has_failed() {
        hindrances.push("a step failed".into());
    }
    match hindrances.is_empty() {
        true => println!("\nTo upload, from {}:", out.display()),
        false => println!("\nNOT to be uploaded ({}); in {}:", hindrances.join("; "), out.display()),
    }
    let files = fs::read_dir(out).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.is_file()).collect();
    files.sort();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::metadata(&file).map(|file| file.len()).unwrap_or_default();
        let sum = command("sha256sum", "").arg(&file).output().map(|out| out.stdout).unwrap_or_default();
        let sum = String::from_utf8_lossy(&sum).split(' ').next().unwrap_or_default().to_string();
        let how = match name.as_str() {
            name if name.ends_with(".crate") => "cargo publish -p siltstone".to_string(),
            name if name.ends_with(".whl") || name == format!("siltstone-{VERSION}.tar.gz") => {
                format!("twine upload {name}")
            }
            name => format!("the release's page: {name}"),
        };
        println!("  {name}, {bytes} bytes, sha256 {sum}\n      {how}");
    }
}
