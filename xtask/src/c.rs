//! The C library: installing it, and its tests in C, C++ and Go, with the library that the workspace's own
//! build made. Where a compiler, or LevelDB's sources, cannot be had, it says so.

use crate::clients::{done, limited};
use crate::run::{Tally, command, root};
use crate::tools::{build, install};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Seconds that a test may take.
const RUN_SECONDS: &str = "300";
/// Random operations of the model, and kills.
const OPERATIONS: &str = "20000";
const KILLS: &str = "8";

/// Builds the library for users and lays it out below a prefix.
pub(crate) fn install_into(tally: &mut Tally, prefix: &str) {
    let mut build = crate::run::cargo("build --release -p siltstone-c");
    if !tally.step("build of the C library", &mut build) {
        return;
    }
    let built = root().join("target/release");
    tally.check(&format!("the C library is in {prefix}"), || laid_out(&built, Path::new(prefix)));
}

/// Makes the headers of the sources.
pub(crate) fn write_headers(tally: &mut Tally) {
    let mut write = crate::run::cargo("test -p siltstone-c --test header");
    tally.tests("headers of the C library", write.env("SILTSTONE_HEADER", "write"));
}

/// The tests.
pub(crate) fn step(tally: &mut Tally, seed: u64) {
    if !tally.step("build of the C library", &mut build()) {
        return;
    }
    let tools = [("gcc", "gcc"), ("g++", "g++"), ("pkg-config", "pkg-config")];
    if !tools.iter().all(|(program, package)| install(program, "--version", package)) {
        println!(
            "there is no C compiler or pkg-config here, nor can they be installed: the C library is NOT TESTED"
        );
        return;
    }
    let base = root().join("target/c");
    let place = Place { prefix: base.join("prefix"), base, sources: root().join("bindings/c") };
    let _ = fs::remove_dir_all(&place.base);
    if !tally
        .check("the C library is laid out", || laid_out(&root().join("target/debug/deps"), &place.prefix))
    {
        return;
    }
    println!("seed {seed}; again: cargo xtask c --seed {seed}");
    let seed = seed.to_string();
    for (name, args) in [
        ("api", vec![]),
        ("misuse", vec![]),
        ("leveldb", vec![]),
        ("model", vec![&*seed, OPERATIONS]),
        ("kill", vec![KILLS]),
    ] {
        place.test(tally, name, &args, Under::Sanitizers);
    }
    if install("valgrind", "--version", "valgrind") {
        place.test(tally, "api", &[], Under::Valgrind);
        place.test(tally, "misuse", &[], Under::Valgrind);
        place.test(tally, "leveldb", &[], Under::Valgrind);
    } else {
        println!(
            "there is no valgrind here and it cannot be installed: what it would find is NOT LOOKED FOR"
        );
    }
    place.wrappers(tally);
    place.tours(tally);
    leveldb(tally, &place);
    sharp(tally, &place);
}

/// What watches a test.
#[derive(Clone, Copy)]
enum Under {
    Sanitizers,
    Valgrind,
}

/// Where programs are made.
pub(crate) struct Place {
    pub(crate) base: PathBuf,
    /// Where the library is installed.
    pub(crate) prefix: PathBuf,
    pub(crate) sources: PathBuf,
}

impl Place {
    /// A compiler with the flags that pkg-config tells, which has to find the library by them alone.
    fn compiler(&self, program: &str, from: &Path, to: &Path) -> Command {
        let mut compile = command(program, "-O1 -g -Wall -Wextra -Werror -pedantic");
        compile.arg(from).arg("-o").arg(to).args(self.flags());
        compile
    }

    fn flags(&self) -> Vec<String> {
        let mut ask = command("pkg-config", "--cflags --libs siltstone");
        let told =
            ask.env("PKG_CONFIG_PATH", self.packages()).output().map(|out| out.stdout).unwrap_or_default();
        String::from_utf8_lossy(&told).split_whitespace().map(str::to_string).collect()
    }

    fn packages(&self) -> PathBuf {
        self.prefix.join("lib/pkgconfig")
    }

    fn libraries(&self) -> PathBuf {
        self.prefix.join("lib")
    }

    /// A directory of its own, empty.
    fn data(&self, name: &str) -> PathBuf {
        let data = self.base.join("data").join(name);
        let _ = fs::remove_dir_all(&data);
        fs::create_dir_all(&data).expect("a directory can be made");
        data
    }

    fn run(&self, program: &Path, data: &Path) -> Command {
        let mut run = limited(RUN_SECONDS, program);
        run.arg(data).env("LD_LIBRARY_PATH", self.libraries());
        run
    }

    /// Compiles a test and runs it.
    fn test(&self, tally: &mut Tally, name: &str, args: &[&str], under: Under) {
        let program = self.base.join(match under {
            Under::Sanitizers => format!("{name}-sanitized"),
            Under::Valgrind => name.to_string(),
        });
        let mut compile = self.compiler("gcc", &self.sources.join(format!("tests/{name}.c")), &program);
        // Ranges in `switch` are no standard, and any compiler there is has them.
        compile.args(["-std=gnu11", "-Wno-pedantic", "-pthread", "-I"]);
        compile.arg(self.prefix.join("include/siltstone"));
        if matches!(under, Under::Sanitizers) {
            compile.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
        }
        let what = match under {
            Under::Sanitizers => "under sanitizers",
            Under::Valgrind => "under valgrind",
        };
        if !tally.step(&format!("C: {name} is compiled"), &mut compile) {
            return;
        }
        let data = self.data(name);
        let mut run = match under {
            Under::Sanitizers => self.run(&program, &data),
            Under::Valgrind => {
                let mut run = limited(RUN_SECONDS, "valgrind");
                run.args([
                    "--quiet",
                    "--error-exitcode=9",
                    "--leak-check=full",
                    "--show-leak-kinds=definite",
                ]);
                run.args(["--errors-for-leak-kinds=definite"]).arg(&program).arg(&data);
                run.env("LD_LIBRARY_PATH", self.libraries());
                run
            }
        };
        tally.step(&format!("C: {name} {what}"), run.args(args));
    }

    /// The owners in C++.
    fn wrappers(&self, tally: &mut Tally) {
        let program = self.base.join("wrappers");
        let mut compile = self.compiler("g++", &self.sources.join("tests/wrappers.cpp"), &program);
        compile.args(["-std=c++17", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
        if tally.step("C++: wrappers is compiled", &mut compile) {
            tally.step("C++: wrappers under sanitizers", &mut self.run(&program, &self.data("wrappers")));
        }
    }

    /// The examples, each of which ends with what it prints.
    pub(crate) fn tours(&self, tally: &mut Tally) {
        for (language, file, compiler, standard) in
            [("C", "tour.c", "gcc", "-std=c11"), ("C++", "tour.cpp", "g++", "-std=c++17")]
        {
            let (from, to) =
                (self.sources.join("examples").join(file), self.base.join(file.replace('.', "-")));
            let mut compile = self.compiler(compiler, &from, &to);
            compile.args([standard, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
            if tally.step(&format!("the example in {language} is compiled"), &mut compile) {
                self.prints(tally, language, &from, self.run(&to, &self.data(file)));
            }
        }
        self.static_tour(tally);
        let packages = self.base.join("packages");
        let mut compile = self.compiler("gcc", &self.sources.join("examples/packages.c"), &packages);
        compile.args(["-std=c11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
        if tally.step("the package example in C is compiled", &mut compile) {
            tally.step("the package example in C", &mut self.run(&packages, &self.data("packages")));
        }
        if !install("go", "version", "golang-go") {
            println!("there is no Go here and it cannot be installed: the example in Go is NOT TESTED");
            return;
        }
        let (from, to) = (self.sources.join("examples/go"), self.base.join("tour-go"));
        let mut compile = command("go", "build -o");
        compile.arg(&to).arg(".").current_dir(&from).env("PKG_CONFIG_PATH", self.packages());
        if tally.step("the example in Go is compiled", &mut compile) {
            self.prints(tally, "Go", &from.join("main.go"), self.run(&to, &self.data("tour.go")));
        }
    }

    /// The example in C with the library within it.
    fn static_tour(&self, tally: &mut Tally) {
        let (from, to) = (self.sources.join("examples/tour.c"), self.base.join("tour-static"));
        let mut compile = command("gcc", "-std=c11 -Wall -Wextra -Werror");
        compile.arg(&from).arg("-o").arg(&to).arg("-I").arg(self.prefix.join("include"));
        compile.arg(self.libraries().join("libsiltstone.a")).args([
            "-lgcc_s",
            "-lutil",
            "-lrt",
            "-lpthread",
            "-lm",
            "-ldl",
        ]);
        if tally.step("the example in C is linked with the static library", &mut compile) {
            let mut run = limited(RUN_SECONDS, &to);
            run.arg(self.data("tour-static"));
            self.prints(tally, "C, static,", &from, run);
        }
    }

    fn prints(&self, tally: &mut Tally, language: &str, source: &Path, mut run: Command) {
        tally.check(&format!("the example in {language} prints what it says"), || {
            let text = fs::read_to_string(source).unwrap_or_default();
            let said = text.split_once("// Prints:\n").map(|(_, lines)| lines.replace("//     ", ""));
            let output = match run.stderr(Stdio::inherit()).output() {
                Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
                Ok(output) => return vec![output.status.to_string()],
                Err(why) => return vec![why.to_string()],
            };
            match said.is_some_and(|said| said == output) {
                true => Vec::new(),
                false => vec![format!("it printed\n{output}")],
            }
        });
    }
}

/// LevelDB's own test of its C interface, from Debian's source package, linked with our library alone.
fn leveldb(tally: &mut Tally, place: &Place) {
    let sources = root().join("target/leveldb");
    let Some(test) = leveldb_test(&sources) else {
        println!("LevelDB's sources cannot be had here: its test is NOT RUN");
        return;
    };
    let include = test.parent().and_then(Path::parent).map(|base| base.join("include")).unwrap_or_default();
    for (whose, include) in
        [("LevelDB's header", include), ("our header", place.prefix.join("include/siltstone"))]
    {
        let program = place.base.join("leveldb-test");
        let mut compile = command("gcc", "-std=gnu11 -O1 -g");
        compile.arg("-I").arg(include).arg(&test).arg("-o").arg(&program).args(place.flags());
        compile.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
        if tally.step(&format!("LevelDB's test in C is compiled with {whose}"), &mut compile) {
            let data = place.data("leveldb");
            let mut run = place.run(&program, &data);
            tally.step(&format!("LevelDB's test in C, with {whose}"), run.env("TEST_TMPDIR", &data));
        }
    }
}

/// A program that Debian built for LevelDB, and that only finds our library under LevelDB's name.
fn sharp(tally: &mut Tally, place: &Place) {
    let library = Path::new("/usr/lib/cli/leveldb-sharp-1.2/leveldb-sharp.dll");
    let there = install("mono", "--version", "mono-runtime") && install("mcs", "--version", "mono-mcs");
    let mut get = command("apt-get", "install --yes --quiet --no-install-recommends libleveldb1.2-cil");
    if !(there && (library.exists() || done(&mut get))) {
        println!("Mono, or libleveldb1.2-cil, cannot be had here: a program of Debian's is NOT TRIED");
        return;
    }
    let (program, links) = (place.base.join("sharp.exe"), place.base.join("leveldb-links"));
    let mut compile = command("mcs", "-warnaserror");
    compile.arg(format!("-out:{}", program.display())).arg(format!("-r:{}", library.display()));
    compile.arg(place.sources.join("tests/sharp/Program.cs"));
    let laid = tally.check("a link of LevelDB's name", || {
        let lay = fs::create_dir_all(&links).and_then(|()| {
            symlink(place.libraries().join("libsiltstone.so"), links.join("libleveldb.so.1d"))
        });
        lay.err().iter().map(ToString::to_string).collect()
    });
    if laid && tally.step("the program in C# is compiled", &mut compile) {
        let mut run = limited(RUN_SECONDS, "mono");
        run.arg(&program).arg(place.data("sharp")).env("LD_LIBRARY_PATH", &links);
        tally.step("libleveldb1.2-cil with our library in LevelDB's place", &mut run);
    }
}

/// Where the test lies. Its package is fetched as signed by Debian, by lists of its own: few machines have
/// those of sources.
fn leveldb_test(base: &Path) -> Option<PathBuf> {
    let there = || {
        let entries = fs::read_dir(base).ok()?;
        let tests = entries.flatten().map(|entry| entry.path().join("db/c_test.c"));
        tests.into_iter().find(|test| test.exists())
    };
    if let Some(test) = there() {
        return Some(test);
    }
    let release = fs::read_to_string("/etc/os-release").ok()?;
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?.trim_matches('"');
    let lists = base.join("lists");
    fs::create_dir_all(lists.join("partial")).ok()?;
    let list = base.join("sources.list");
    fs::write(&list, format!("deb-src http://deb.debian.org/debian {suite} main\n")).ok()?;
    let apt = |args: &str| {
        let mut apt = limited("120", "apt-get");
        apt.current_dir(base).args(["-o", &format!("Dir::Etc::SourceList={}", list.display())]);
        apt.args(["-o", "Dir::Etc::SourceParts=-", "-o", &format!("Dir::State::Lists={}", lists.display())]);
        apt.args(["-o", &format!("Dir::Cache={}", lists.display())]);
        apt.args(args.split(' ')).stdout(Stdio::null());
        apt.status().is_ok_and(|status| status.success())
    };
    (apt("--quiet update") && apt("--quiet --download-only source leveldb")).then_some(())?;
    let entries = fs::read_dir(base).ok()?.flatten().map(|entry| entry.path());
    let archive = entries.into_iter().find(|path| path.to_string_lossy().contains(".orig.tar"))?;
    let mut unpack = command("tar", "-xf");
    unpack.arg(archive).current_dir(base).status().ok().filter(std::process::ExitStatus::success)?;
    there()
}

/// Lays the library out as users have it; what failed.
pub(crate) fn laid_out(built: &Path, prefix: &Path) -> Vec<String> {
    let lay = || -> io::Result<()> {
        let (sources, version) = (root().join("bindings/c"), env!("CARGO_PKG_VERSION"));
        let library = prefix.join("lib");
        fs::create_dir_all(library.join("pkgconfig"))?;
        fs::create_dir_all(prefix.join("include/siltstone/leveldb"))?;
        for header in ["siltstone.h", "siltstone.hpp", "siltstone/leveldb/c.h"] {
            fs::copy(sources.join("include").join(header), prefix.join("include").join(header))?;
        }
        let whole = format!("libsiltstone.so.{version}");
        for (from, to) in [("libsiltstone_c.a", "libsiltstone.a"), ("libsiltstone_c.so", &whole)] {
            // Removed first: a program may be running with it.
            let _ = fs::remove_file(library.join(to));
            fs::copy(built.join(from), library.join(to))?;
        }
        for name in [format!("libsiltstone.so.{}", abi(version)), "libsiltstone.so".to_string()] {
            let _ = fs::remove_file(library.join(&name));
            symlink(&whole, library.join(name))?;
        }
        let package = fs::read_to_string(sources.join("siltstone.pc.in"))?.replace("@version@", version);
        fs::write(library.join("pkgconfig/siltstone.pc"), package)
    };
    lay().err().map(|why| why.to_string()).into_iter().collect()
}

/// The part of a version with which the library's interface changes.
fn abi(version: &str) -> String {
    let mut parts = version.split('.');
    match (parts.next(), parts.next()) {
        (Some("0"), Some(minor)) => format!("0.{minor}"),
        (major, _) => major.unwrap_or_default().to_string(),
    }
}
