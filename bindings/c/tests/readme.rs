//! The page of the C library shows code of the examples, which are compiled and run.

use std::fs;
use std::path::Path;

#[test]
fn code_on_the_page_is_that_of_the_examples() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
    let page = read("README.md");
    let mut seen = 0;
    for block in page.split("\n```").collect::<Vec<_>>().chunks(2) {
        let [_, block] = block else { continue };
        let (language, code) = block.split_once('\n').unwrap();
        let example = match language {
            "c" => "examples/tour.c",
            "cpp" => "examples/tour.cpp",
            "go" => "examples/go/main.go",
            _ => continue,
        };
        assert!(read(example).contains(code), "{example} has not\n{code}");
        seen += 1;
    }
    assert_eq!(seen, 6);
}
