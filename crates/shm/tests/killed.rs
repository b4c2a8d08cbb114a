//! Real processes, killed in the middle of whatever they do: the survivor is told within a second.
//!
//! A test starts this very program again with a role in its environment and a socket as its
//! standard input, over which the child gets its segment. Nothing sleeps to be lucky: a kill may
//! strike anywhere, and every place must end the same way.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use syncline_shm::board::Board;
use syncline_shm::duplex::{Duplex, DuplexError};
use syncline_shm::fdpass::{recv_fd, send_fd};
use syncline_shm::fork::ForkGuard;
use syncline_shm::meeting::MeetError;
use syncline_shm::wait::{Deadline, Patience, WaitError};

const ROLE: &str = "SYNCLINE_SHM_TEST_ROLE";
const JOB: [u8; 16] = [3; 16];
const TOLD_WITHIN: Duration = Duration::from_secs(1);

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// The kernel's word on whether a process lives.
struct Life(OwnedFd);

impl Life {
    fn of(pid: u32) -> Life {
        let pid = Pid::from_raw(pid as i32).expect("a pid");
        Life(pidfd_open(pid, PidfdFlags::empty()).expect("a process"))
    }

    fn goes_on(&self) -> bool {
        let mut asked = [PollFd::new(&self.0, PollFlags::IN)];
        let now = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut asked, Some(&now)) == Ok(0)
    }
}

/// A child in some role, killed when the test ends, however it ends.
struct Member {
    child: Child,
    life: Life,
    line: UnixStream,
}

impl Member {
    fn start(role: &str, segment: impl AsFd) -> Member {
        let (line, theirs) = UnixStream::pair().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let life = Life::of(child.id());
        send_fd(&line, segment.as_fd()).unwrap();
        Member { child, life, line }
    }

    /// Waits until the child says that it is in the middle of its work.
    fn ready(&mut self) {
        self.line.read_exact(&mut [0]).unwrap();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test of its own: what the children do.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let mut line = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let segment = recv_fd(&line).unwrap();
    match role.as_str() {
        "send" => {
            let (mut out, _into) = Duplex::open(segment).unwrap().split();
            let body = vec![5; 3 << 20];
            line.write_all(b".").unwrap();
            for n in 0.. {
                let len = [64, 5_000, 100_000, body.len()][n % 4];
                let _ = out.send(&[b"head"], &[&body[..len]], soon(), &|| true);
            }
        }
        "receive" => {
            let (_out, mut into) = Duplex::open(segment).unwrap().split();
            let mut head = Vec::new();
            let mut body = Vec::new();
            line.write_all(b".").unwrap();
            loop {
                let len = into.recv_head(&mut head, soon(), &|| true).unwrap();
                body.resize(len as usize, 0);
                into.recv_body(&mut body, soon(), &|| true).unwrap();
            }
        }
        "sleep" => {
            let (_out, _into) = Duplex::open(segment).unwrap().split();
            line.write_all(b".").unwrap();
            let _ = line.read(&mut [0]); // until it is killed
        }
        meet => {
            let me: usize = meet.strip_prefix("meet ").unwrap().parse().unwrap();
            let board = Board::open(segment, 3, JOB).unwrap();
            board.slot(me).set_pid(std::process::id());
            line.write_all(b".").unwrap();
            let mut pids = [0; 12];
            line.read_exact(&mut pids).unwrap();
            let lives = pids
                .chunks(4)
                .map(|pid| u32::from_le_bytes(pid.try_into().unwrap()));
            let lives: Vec<Life> = lives.map(Life::of).collect();
            let error = meet_until_someone_is_gone(&board, me, &lives);
            line.write_all(&[error.missing as u8]).unwrap();
        }
    }
}

fn meet_until_someone_is_gone(board: &Board, me: usize, lives: &[Life]) -> MeetError {
    let mut meeting = board.meeting(me, Patience::new(3, 2));
    let gone = |rank: usize| rank != me && !lives[rank].goes_on();
    loop {
        let round = meeting.arrive();
        if let Err(error) = meeting.wait(round, soon(), &gone) {
            return error;
        }
    }
}

#[test]
fn a_sender_killed_in_any_message_is_reported() {
    for after in [0, 1, 2, 3, 4, 7, 50] {
        let (here, fd) = Duplex::create().unwrap();
        let (_out, mut into) = here.split();
        let mut member = Member::start("send", fd);
        member.ready();
        let mut head = Vec::new();
        let mut body = Vec::new();
        let mut receive = |member: &Member| -> Result<(), DuplexError> {
            let alive = || member.life.goes_on();
            let len = into.recv_head(&mut head, soon(), &alive)?;
            body.resize(len as usize, 0);
            into.recv_body(&mut body, soon(), &alive)?;
            assert!(head == b"head" && body.iter().all(|&byte| byte == 5));
            Ok(())
        };
        for _ in 0..after {
            receive(&member).unwrap();
        }
        member.child.kill().unwrap();
        let killed = Instant::now();
        // Whole messages that were published before the kill still arrive.
        let error = loop {
            if let Err(error) = receive(&member) {
                break error;
            }
        };
        assert!(matches!(error, DuplexError::Gone), "after {after}: {error}");
        assert!(
            killed.elapsed() < TOLD_WITHIN,
            "after {after}: {:?}",
            killed.elapsed()
        );
    }
}

#[test]
fn a_receiver_killed_while_we_send_is_reported() {
    for role in ["receive", "sleep"] {
        for size in [64, 5_000, 3 << 20] {
            let (here, fd) = Duplex::create().unwrap();
            let (mut out, _into) = here.split();
            let mut member = Member::start(role, fd);
            member.ready();
            let body = vec![1; size];
            let (error, told) = std::thread::scope(|scope| {
                let life = &member.life;
                let sending = scope.spawn(|| {
                    loop {
                        let sent = out.send(&[b"head"], &[&body], soon(), &|| life.goes_on());
                        if let Err(error) = sent {
                            return (error, Instant::now());
                        }
                    }
                });
                member.child.kill().unwrap();
                let killed = Instant::now();
                let (error, ended) = sending.join().unwrap();
                (error, ended.saturating_duration_since(killed))
            });
            assert!(matches!(error, DuplexError::Gone), "{role} {size}: {error}");
            assert!(told < TOLD_WITHIN, "{role} {size}: {told:?}");
        }
    }
}

#[test]
fn every_survivor_of_a_meeting_names_the_one_that_was_killed() {
    for victim in [1, 2, 1, 2] {
        let board = Board::create(3, JOB).unwrap();
        let mut members: Vec<Member> = (1..3)
            .map(|me| Member::start(&format!("meet {me}"), board.fd()))
            .collect();
        members.iter_mut().for_each(Member::ready);
        let pids = [std::process::id(), board.slot(1).pid(), board.slot(2).pid()];
        let pids: Vec<u8> = pids.iter().flat_map(|pid| pid.to_le_bytes()).collect();
        for member in &mut members {
            member.line.write_all(&pids).unwrap();
        }
        let lives: Vec<Life> = pids
            .chunks(4)
            .map(|pid| Life::of(u32::from_le_bytes(pid.try_into().unwrap())))
            .collect();
        let (error, told) = std::thread::scope(|scope| {
            let meeting = scope.spawn(|| {
                let error = meet_until_someone_is_gone(&board, 0, &lives);
                (error, Instant::now())
            });
            // Some rounds must have passed, so that the kill strikes a meeting.
            while board.slot(victim).round() < 10 {
                std::thread::yield_now();
            }
            members[victim - 1].child.kill().unwrap();
            let killed = Instant::now();
            let (error, ended) = meeting.join().unwrap();
            (error, ended.saturating_duration_since(killed))
        });
        assert_eq!((error.missing, error.cause), (victim, WaitError::Gone));
        assert!(told < TOLD_WITHIN, "{told:?}");
        let mut named = [0];
        members[2 - victim].line.read_exact(&mut named).unwrap();
        assert_eq!(named[0] as usize, victim);
    }
}

#[test]
fn a_forked_child_knows_that_it_is_not_the_original() {
    use std::os::unix::process::CommandExt;

    let guard = std::sync::Arc::new(ForkGuard::new().unwrap());
    let childs = std::sync::Arc::clone(&guard);
    let mut command = Command::new("/bin/true");
    // SAFETY: between fork and exec the closure only loads a word and makes an error without
    // allocating.
    unsafe {
        command.pre_exec(move || match childs.is_original() {
            true => Err(std::io::Error::from_raw_os_error(1)),
            false => Ok(()),
        })
    };
    let status = command.status().expect("the child saw an empty page");
    assert!(status.success());
    assert!(guard.is_original());
}
