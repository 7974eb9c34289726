//! Output, commands and process status of a contestant.

use std::{
    fs,
    io::{self, Read, Write},
    net::TcpStream,
    process::exit,
    thread,
};

use serde_json::{Value, json};

/// Writes a line of the protocol.
pub fn report(line: Value) {
    println!("{line}");
}

/// Sends a command to the canned server, outside the event loop.
pub fn command(url: &str, path: &str) {
    let (url, path) = (url.to_owned(), path.to_owned());
    thread::spawn(move || {
        if let Err(error) = request(url.trim_start_matches("http://"), &path) {
            report(json!({"at": "error", "message": format!("{path}: {error}")}));
            exit(1);
        }
    });
}

fn request(address: &str, path: &str) -> io::Result<()> {
    let mut connection = TcpStream::connect(address)?;
    write!(connection, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    connection.read_exact(&mut [0; 1])
}

/// A line of this process's status, in KiB. There is no garbage to release first, because
/// Rust frees memory at the end of its use.
pub fn memory(name: &str) -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find(|it| it.starts_with(name));
    line.and_then(|it| it.split_whitespace().nth(1)?.parse().ok())
        .ok_or_else(|| io::Error::other(format!("/proc/self/status has no {name}")))
}

/// Resets the peak of resident memory to the current value.
pub fn forget_peak() -> io::Result<()> {
    fs::write("/proc/self/clear_refs", "5")
}
