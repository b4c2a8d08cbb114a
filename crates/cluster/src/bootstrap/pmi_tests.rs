//! The PMI client against a server that misbehaves. The real one is in `tests/bootstrap_launchers.rs`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use super::*;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

/// A server that answers each line by `answer`; `None` ends it.
fn server(mut answer: impl FnMut(&str) -> Option<String> + Send + 'static) -> (OwnedFd, JoinHandle<Vec<String>>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let mut heard = Vec::new();
        let mut writer = theirs.try_clone().unwrap();
        for line in BufReader::new(theirs).lines() {
            let Ok(line) = line else { break };
            let reply = answer(&line);
            heard.push(line);
            match reply {
                Some(reply) if writer.write_all(reply.as_bytes()).is_ok() => {}
                _ => break,
            }
        }
        heard
    });
    (ours.into(), thread)
}

fn polite(line: &str) -> Option<String> {
    Some(match field(line, "cmd")? {
        "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n".into(),
        "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=64\n".into(),
        "get_my_kvsname" => "cmd=my_kvsname kvsname=kvs_1\n".into(),
        "barrier_in" => "cmd=barrier_out\n".into(),
        "finalize" => "cmd=finalize_ack\n".into(),
        _ => return None,
    })
}

/// A polite server with a memory that two clients can share one after the other.
fn remembering(memory: std::sync::Arc<std::sync::Mutex<Vec<(String, String)>>>) -> impl FnMut(&str) -> Option<String> {
    move |line| {
        let key = field(line, "key").unwrap_or_default().to_owned();
        let mut memory = memory.lock().unwrap();
        match field(line, "cmd")? {
            "put" => {
                memory.push((key, field(line, "value")?.to_owned()));
                Some("cmd=put_result rc=0 msg=success\n".into())
            }
            "get" => Some(match memory.iter().find(|(known, _)| *known == key) {
                Some((_, value)) => format!("cmd=get_result rc=0 msg=success value={value}\n"),
                None => format!("cmd=get_result rc=-1 msg=key_{key}_not_found value=unknown\n"),
            }),
            _ => polite(line),
        }
    }
}

#[test]
fn a_long_invitation_travels_in_pieces() {
    let invitation = Invitation {
        job: "job with spaces = and more".into(),
        epoch: 2,
        addresses: (1..20).map(|port| std::net::SocketAddr::from(([10, 0, 0, 7], port))).collect(),
        local: None,
        token: super::super::Token::from_text("secret"),
    };
    let memory = std::sync::Arc::default();
    let (socket, thread) = server(remembering(std::sync::Arc::clone(&memory)));
    Pmi::over(socket, soon()).unwrap().exchange(Some(&invitation), soon()).unwrap();
    let heard = thread.join().unwrap();
    assert!(heard.iter().all(|line| line.len() < 256), "{heard:?}");
    assert_eq!(heard.iter().filter(|line| line.contains("finalize")).count(), 1);

    let (socket, _thread) = server(remembering(memory));
    let mut pmi = Pmi::over(socket, soon()).unwrap();
    assert_eq!(pmi.kvsname(), "kvs_1");
    assert_eq!(pmi.get("nothing", soon()).unwrap(), None);
    assert_eq!(pmi.exchange(None, soon()).unwrap(), invitation);
}

#[test]
fn nothing_published_is_said_so() {
    let (socket, _thread) = server(remembering(std::sync::Arc::default()));
    let error = Pmi::over(socket, soon()).unwrap().exchange(None, soon()).unwrap_err();
    assert!(matches!(error, PmiError::NothingPublished));
}

#[test]
fn a_barrier_nobody_else_enters_ends_at_the_deadline_and_spoils_the_rest() {
    let (socket, _thread) = server(|line| if line.contains("barrier") { Some(String::new()) } else { polite(line) });
    let mut pmi = Pmi::over(socket, soon()).unwrap();
    let error = pmi.barrier(Deadline::after(Duration::from_millis(30))).unwrap_err();
    assert!(error.to_string().contains("have all been started"), "{error}");
    assert!(matches!(pmi.get("x", soon()), Err(PmiError::Spoiled { .. })));
}

#[test]
fn an_interrupt_ends_a_barrier() {
    let (socket, _thread) = server(|line| if line.contains("barrier") { Some(String::new()) } else { polite(line) });
    let mut pmi = Pmi::over(socket, soon()).unwrap();
    assert!(matches!(pmi.barrier(soon().with_interrupt(|| true)), Err(PmiError::Interrupted { .. })));
}

#[test]
fn endless_wrong_and_missing_answers_are_errors() {
    let (socket, _thread) = server(|_| Some("x".repeat(1 << 20)));
    assert!(matches!(Pmi::over(socket, soon()), Err(PmiError::TooLong { .. })));
    let (socket, _thread) = server(|_| Some("cmd=response_to_init rc=-1\n".into()));
    assert!(matches!(Pmi::over(socket, soon()), Err(PmiError::Refused { .. })));
    let (socket, _thread) = server(|_| Some("\u{fffd}\0\n".into()));
    assert!(matches!(Pmi::over(socket, soon()), Err(PmiError::Refused { .. })));
    let (socket, _thread) = server(|_| None);
    assert!(matches!(Pmi::over(socket, soon()), Err(PmiError::Closed { .. })));
}

#[test]
fn what_would_break_a_line_is_not_sent() {
    let (socket, thread) = server(polite);
    let mut pmi = Pmi::over(socket, soon()).unwrap();
    for (key, value) in [("a b", "v"), ("k", "two words"), ("k", "line\nbreak"), ("k", ""), ("k", &"v".repeat(64))] {
        assert!(matches!(pmi.put(key, value, soon()), Err(PmiError::DoesNotFit { .. })), "{key:?} {value:?}");
    }
    drop(pmi);
    assert_eq!(thread.join().unwrap().len(), 3);
}

#[test]
fn a_number_that_is_no_descriptor_is_an_error() {
    let error = Pmi::open(987_654, soon()).unwrap_err();
    assert!(matches!(error, PmiError::Descriptor { fd: 987_654, .. }), "{error}");
}
