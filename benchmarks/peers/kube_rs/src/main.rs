//! Copies all pods of a server by kube's watcher and reflector, as a contestant of the
//! benchmarks. bench/contestant.py describes its protocol.
//!
//!     kube_rs URL [--events N] [--body] [--relist N] [--changed F]
//!             [--list pages|cache|stream]
//!
//! The watcher has its default settings (pages of 500), and the default backoff, which the
//! documentation recommends. With `--list cache` it accepts any version, which a server sends
//! from its watch cache in one response. With `--list stream` it streams the first list. A relist repeats every pod, changed or not, and the store changes
//! at its end, which is when a relist counts as complete.

mod handler;
mod process;

use std::{env, pin::pin, process::exit, time::Instant};

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{
        WatchStreamExt, reflector,
        watcher::{self, watcher},
    },
};
use serde_json::json;

use handler::{Handler, Step, digest};
use process::{command, forget_peak, memory, report};

type Failure = Box<dyn std::error::Error>;

#[derive(Default)]
struct Options {
    url: String,
    events: usize,
    body: bool,
    relist: usize,
    changed: String,
    list: String,
}

#[tokio::main]
async fn main() {
    if let Err(error) = run().await {
        report(json!({"at": "error", "message": error.to_string()}));
        exit(1);
    }
}

async fn run() -> Result<(), Failure> {
    let options = parsed(env::args().skip(1))?;
    let pods: Api<Pod> = Api::all(client(&options.url).await?);
    let (copy, writer) = reflector::store();
    let stream = reflector(writer, watcher(pods, settings(&options.list)?));
    let mut stream = pin!(stream.default_backoff());
    let mut handler = Handler::new(options.body);
    report(json!({"at": "start", "resident": memory("VmRSS")?}));

    let began = Instant::now();
    // Exit if the server cannot be listed at all. The watcher recovers from later errors.
    while let Some(event) = stream.try_next().await? {
        if handler.look(&event) == Step::Listed {
            break;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let objects = copy.len();
    report(json!({
        "at": "synced", "seconds": seconds, "objects": objects, "resident": memory("VmRSS")?,
    }));

    if options.events > 0 {
        watch(&options, &mut stream, &mut handler).await?;
    }
    if options.relist > 0 {
        relist(&options, &mut stream, &mut handler).await?;
    }
    report(json!({"at": "end", "digest": digest(&copy.state())}));
    Ok(())
}

/// Measures the changes that the server sends on request.
async fn watch(
    options: &Options,
    stream: &mut (impl Stream<Item = watcher::Result<watcher::Event<Pod>>> + Unpin),
    handler: &mut Handler,
) -> Result<(), Failure> {
    handler.latencies.reserve(options.events);
    let began = Instant::now();
    command(&options.url, "/bench/go");
    let mut missing = options.events;
    while missing > 0 {
        if next(stream, handler).await == Step::Changed {
            missing -= 1;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let latencies = std::mem::take(&mut handler.latencies);
    report(json!({
        "at": "watched", "seconds": seconds, "events": options.events,
        "latencies": latencies, "resident": memory("VmRSS")?,
    }));
    Ok(())
}

/// Measures the time and the peak of memory of a relist after an expired watch.
async fn relist(
    options: &Options,
    stream: &mut (impl Stream<Item = watcher::Result<watcher::Event<Pod>>> + Unpin),
    handler: &mut Handler,
) -> Result<(), Failure> {
    forget_peak()?;
    let began = Instant::now();
    command(
        &options.url,
        &format!("/bench/relist?changed={}", options.changed),
    );
    while next(stream, handler).await != Step::Listed {}
    let seconds = began.elapsed().as_secs_f64();
    report(json!({
        "at": "relisted", "seconds": seconds,
        "peak": memory("VmHWM")?, "resident": memory("VmRSS")?,
    }));
    Ok(())
}

async fn next(
    stream: &mut (impl Stream<Item = watcher::Result<watcher::Event<Pod>>> + Unpin),
    handler: &mut Handler,
) -> Step {
    match stream.next().await.expect("a watcher never ends") {
        Ok(event) => handler.look(&event),
        Err(error) => {
            eprintln!("kube_rs: {error}");
            Step::Other
        }
    }
}

fn parsed(mut arguments: impl Iterator<Item = String>) -> Result<Options, Failure> {
    let mut options = Options {
        changed: "1".to_owned(),
        list: "pages".to_owned(),
        ..Options::default()
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--events" => options.events = value()?.parse()?,
            "--relist" => options.relist = value()?.parse()?,
            "--changed" => options.changed = value()?,
            "--list" => options.list = value()?,
            "--body" => options.body = true,
            _ if argument.starts_with('-') || !options.url.is_empty() => {
                return Err(format!("unknown option {argument}").into());
            }
            _ => options.url = argument,
        }
    }
    if options.url.is_empty() {
        return Err("pass the URL of one server".into());
    }
    Ok(options)
}

fn settings(list: &str) -> Result<watcher::Config, Failure> {
    let default = watcher::Config::default();
    match list {
        "pages" => Ok(default),
        "cache" => Ok(default.any_semantic()),
        "stream" => Ok(default.streaming_lists()),
        _ => Err(format!("unknown list {list}").into()),
    }
}

async fn client(url: &str) -> Result<Client, Failure> {
    let (token, authority) = (env::var("BENCH_TOKEN").ok(), env::var("BENCH_CA").ok());
    let named: Kubeconfig = serde_json::from_value(json!({
        "clusters": [
            {"name": "it", "cluster": {"server": url, "certificate-authority": authority}},
        ],
        "users": [{"name": "it", "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "current-context": "it",
    }))?;
    let config = Config::from_custom_kubeconfig(named, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
