//! The body of the loop over a watcher's events.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    runtime::{reflector::ObjectRef, watcher::Event},
};
use sha2::{Digest, Sha256};

/// Versions from here on are times: nanoseconds since 1970.
const FIRST_TIME: u64 = 1_000_000_000_000_000_000;

/// Kind of an event.
#[derive(PartialEq)]
pub enum Step {
    /// The end of a list, the first one or a later one.
    Listed,
    /// A change of one pod.
    Changed,
    Other,
}

/// Receiver of the events.
pub struct Handler {
    body: bool,
    /// Count of a handler that reads phases.
    running: usize,
    /// An index kept by hand: the store has none.
    by_node: HashMap<String, HashSet<ObjectRef<Pod>>>,
    /// The index of a list that is not complete.
    being_listed: HashMap<String, HashSet<ObjectRef<Pod>>>,
    /// Latencies in milliseconds.
    pub latencies: Vec<f64>,
}

impl Handler {
    pub fn new(body: bool) -> Self {
        Self {
            body,
            running: 0,
            by_node: HashMap::new(),
            being_listed: HashMap::new(),
            latencies: Vec::new(),
        }
    }

    pub fn look(&mut self, event: &Event<Pod>) -> Step {
        match event {
            Event::Init => {
                self.being_listed = HashMap::new();
                Step::Other
            }
            Event::InitApply(pod) => {
                if self.body {
                    self.read(pod);
                    enter(&mut self.being_listed, pod);
                }
                Step::Other
            }
            Event::InitDone => {
                self.by_node = std::mem::take(&mut self.being_listed);
                Step::Listed
            }
            Event::Apply(pod) => {
                if self.body {
                    self.read(pod);
                    enter(&mut self.by_node, pod);
                }
                self.time(pod);
                Step::Changed
            }
            Event::Delete(pod) => {
                if self.body {
                    self.read(pod);
                    if let Some(there) = self.by_node.get_mut(node(pod)) {
                        there.remove(&ObjectRef::from_obj(pod));
                    }
                }
                self.time(pod);
                Step::Changed
            }
        }
    }

    fn read(&mut self, pod: &Pod) {
        if phase(pod) == "Running" {
            self.running += 1;
        }
    }

    fn time(&mut self, pod: &Pod) {
        let version = version(pod).parse().unwrap_or(0);
        if version >= FIRST_TIME {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .expect("it is after 1970");
            let took = Duration::from_nanos((now.as_nanos() as u64).saturating_sub(version));
            self.latencies.push(took.as_secs_f64() * 1000.0);
        }
    }
}

fn enter(by_node: &mut HashMap<String, HashSet<ObjectRef<Pod>>>, pod: &Pod) {
    by_node
        .entry(node(pod).to_owned())
        .or_default()
        .insert(ObjectRef::from_obj(pod));
}

fn node(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|it| it.node_name.as_deref())
        .unwrap_or("")
}

fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|it| it.phase.as_deref())
        .unwrap_or("")
}

fn version(pod: &Pod) -> &str {
    pod.metadata.resource_version.as_deref().unwrap_or("")
}

/// Digest of bench/digest.py for all objects of the store.
pub fn digest(pods: &[Arc<Pod>]) -> String {
    let mut lines: Vec<String> = pods
        .iter()
        .map(|pod| {
            let namespace = pod.namespace().unwrap_or_default();
            let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
            let (version, node, phase) = (version(pod), node(pod), phase(pod));
            format!("{namespace} {name} {uid} {version} {node} {phase}\n")
        })
        .collect();
    lines.sort();
    let sum = Sha256::digest(lines.concat());
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}
