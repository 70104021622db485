//! The library that the Python tests load is built with the workspace's tests because this test is there.

/// Python finds a module by the name of its file and of this function.
#[test]
fn the_library_has_what_python_looks_for() {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("lib_siltstone.so");
    let content = std::fs::read(&library).unwrap_or_else(|why| panic!("{}: {why}", library.display()));
    let name = b"PyInit__siltstone\0";
    assert!(
        content.windows(name.len()).any(|part| part == name),
        "{} has no such function",
        library.display()
    );
}
