//! `siltstone-fuzz TARGET|all [--count N] [--seed S] [--threads T] [--seconds S] [--only I]`: N inputs over
//! the decoders named, or as many as come in that time. The last line says how many there were.

#![expect(unsafe_code, reason = "a global allocator that counts what a thread holds")]

use siltstone_fuzz::run::{self, Memory};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::process::ExitCode;
use std::time::{Duration, Instant};

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

/// Counts for each thread what it holds. Freeing what another thread took counts as nothing.
struct Counting;

fn took(bytes: usize) {
    // A thread that is ending has no counters any more.
    let _ = HELD.try_with(|held| {
        held.set(held.get().saturating_add(bytes));
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

fn freed(bytes: usize) {
    let _ = HELD.try_with(|held| held.set(held.get().saturating_sub(bytes)));
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting neither allocates nor
// unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller keeps `alloc`'s contract, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        took(size);
        freed(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        freed(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

impl Memory for Counting {
    fn begin(&self) {
        HELD.set(0);
        MOST.set(0);
    }

    fn most(&self) -> usize {
        MOST.get()
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match fuzz(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("siltstone-fuzz: {why}");
            ExitCode::FAILURE
        }
    }
}

fn fuzz(arguments: &[String]) -> Result<(), String> {
    let (name, options) = arguments.split_first().ok_or("which decoder? one of them, or all")?;
    let (mut count, mut seed, mut threads, mut only, mut time) = (1_000_000u64, 1, 2usize, None, None);
    for pair in options.chunks(2) {
        let [option, value] = pair else { return Err(format!("{} needs a value", pair[0])) };
        let number: u64 = value.parse().map_err(|_| format!("{option} {value}: not a number"))?;
        match option.as_str() {
            "--count" => count = number,
            "--seed" => seed = number,
            "--threads" => threads = number.clamp(1, 256) as usize,
            "--only" => only = Some(number),
            "--seconds" => time = Some(Duration::from_secs(number)),
            _ => {
                return Err(format!(
                    "unknown option {option}; there are --count, --seed, --threads, --seconds, --only"
                ));
            }
        }
    }
    let targets = run::targets(name);
    if targets.is_empty() {
        let names: Vec<&str> = run::targets("all").iter().map(|t| t.name).collect();
        return Err(format!("no decoder {name}; there are all, {}", names.join(", ")));
    }
    // A panic is reported with its input; run again alone it also says where.
    if only.is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let began = Instant::now();
    let each = count.div_ceil(targets.len() as u64);
    let time = time.map(|time| time / targets.len() as u32);
    let (mut failures, mut inputs) = (Vec::new(), 0);
    for target in &targets {
        let range = only.map_or(0..each, |n| n..n + 1);
        let from = Instant::now();
        match run::many(*target, seed, range, threads, &Counting, time) {
            Ok(done) => {
                inputs += done;
                println!("{done:>12} inputs {:6.2} s  {}", from.elapsed().as_secs_f64(), target.name);
            }
            Err(failure) => {
                let dir = run::corpus(target.name);
                let path = dir.join(format!("seed{seed}-{}", failure.number));
                std::fs::create_dir_all(&dir)
                    .and_then(|()| std::fs::write(&path, &failure.bytes))
                    .map_err(|e| format!("save {}: {e}", path.display()))?;
                println!("FAILED {} on input {}: {}", failure.target, failure.number, failure.what);
                println!(
                    "       saved as {}; again by: {} --seed {seed} --only {}",
                    path.display(),
                    target.name,
                    failure.number
                );
                failures.push(target.name);
            }
        }
    }
    println!("count {inputs}");
    if !failures.is_empty() {
        return Err(format!(
            "{} of {} decoders failed: {}",
            failures.len(),
            targets.len(),
            failures.join(", ")
        ));
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{inputs} inputs over {} decoders in {seconds:.1} s, seed {seed}: only errors", targets.len());
    Ok(())
}
