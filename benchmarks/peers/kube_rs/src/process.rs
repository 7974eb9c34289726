//! What a contestant says, asks and knows about its own process.

use std::{
    fs,
    io::{self, Read, Write},
    net::TcpStream,
    process::exit,
    thread,
};

use serde_json::{Value, json};

/// Writes a line of the contestants' language.
pub fn say(line: Value) {
    println!("{line}");
}

/// Makes the canned server do something, beside the loop; that it answers is enough.
pub fn ask(url: &str, path: &str) {
    let (url, path) = (url.to_owned(), path.to_owned());
    thread::spawn(move || {
        if let Err(error) = request(url.trim_start_matches("http://"), &path) {
            say(json!({"at": "error", "message": format!("{path}: {error}")}));
            exit(1);
        }
    });
}

fn request(address: &str, path: &str) -> io::Result<()> {
    let mut connection = TcpStream::connect(address)?;
    write!(connection, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    connection.read_exact(&mut [0; 1])
}

/// A line of this process's status, in KiB. Nothing is let go of before: all that is not in
/// use was freed when it fell out of use.
pub fn memory(name: &str) -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find(|it| it.starts_with(name));
    line.and_then(|it| it.split_whitespace().nth(1)?.parse().ok())
        .ok_or_else(|| io::Error::other(format!("/proc/self/status has no {name}")))
}

/// Makes the peak of resident memory begin anew, from what is resident now.
pub fn forget_peak() -> io::Result<()> {
    fs::write("/proc/self/clear_refs", "5")
}
