//! The way into a job: open a door, meet the coordinator, learn who is there, share memory with the neighbours.
//!
//! ```text
//! member                            coordinator (rank 0, or the launcher)
//!   dials the meeting point ──────▶ proves the token, both ways
//!   opens its own door
//!   Join: who I am, where I listen ▶ waits for the last one
//!   ◀──────── Welcome: the roster    (or Refused, StartTimeout, Down)
//!   lowest rank of a host: makes the board, passes it to each neighbour's door
//!   others: wait for it
//! ```
//! Costs one round trip to the coordinator and one call per neighbour.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use syncline_shm::board::{Board, State};
use syncline_shm::wait::Deadline;
use syncline_transport::{Connection, Door, DoorConfig, DoorEvent, JobKey, LinkError, RecvHalf, SendHalf, TransportKind};
use syncline_wire::message::{Control, Hello, MemberInfo, Purpose};

use crate::bootstrap::{HostSpan, Launch, Meeting};
use crate::control::{ControlError, fate_of, receive_control, send_control};
use crate::job::{Job, Parts, private_heap};
use crate::meet::Met;
use crate::seat::{ControlLine, Seat};
use crate::settings::{OnPeerLoss, Settings, TransportChoice};
use crate::switchboard::{CallError, Switchboard};
use crate::{Error, Role, Topology, Who, control_thread, meet, roster, watcher};

/// What a coordinator may need beyond a member's patience to say why the job did not start.
const GRACE: Duration = Duration::from_secs(3);

pub(crate) fn join(launch: &Launch, settings: &Settings, deadline: Deadline) -> Result<Job, Error> {
    match launch.meeting {
        _ if launch.role == Role::Coordinator => Err(Error::Configuration {
            detail: "this process is the scheduler of its job and no rank of it\nhint: start `syncline server` in its place, it coordinates the others".into(),
        }),
        Meeting::Alone => {
            tracing::info!("a world of one; {}", launch.because.join(", "));
            Job::alone(settings.timeout)
        }
        _ => {
            let started = Instant::now();
            let mut met = meet::meet(launch, settings, deadline)?;
            // Rank 0 removes the rendezvous file, unless it was killed before everybody had come.
            enter(launch, settings, &mut met, started, deadline).inspect_err(|_| met.remove_leftover(launch))
        }
    }
}

/// Hosts the coordinator of a job without being one of its ranks, until everybody has left or died.
///
/// This is what a DMLC scheduler does. The wait has no deadline: how long the others train is theirs to say.
pub fn coordinate(launch: &Launch, settings: &Settings, deadline: Deadline) -> Result<(), Error> {
    const LOOK: Duration = Duration::from_millis(100);
    let met = meet::meet(launch, settings, deadline)?;
    let Some(coordinator) = &met.coordinator else {
        return Err(Error::Configuration { detail: format!("this process was started as a {}, not to coordinate the job", launch.role) });
    };
    while !coordinator.wait_finished(LOOK) {
        if deadline.interrupted() {
            return Err(Error::Interrupted { operation: "coordinating".into(), waited: deadline.waited() });
        }
    }
    Ok(())
}

fn enter(launch: &Launch, settings: &Settings, met: &mut Met, started: Instant, deadline: Deadline) -> Result<Job, Error> {
    let mut instance = [0; 16];
    getrandom::fill(&mut instance).map_err(|error| Error::system("start: random numbers", error))?;
    let connection = meet::dial(launch, met, settings, instance, started, deadline)?;
    let key = met.key.clone();
    let door = open_door(launch, settings, &key, instance)?;
    let door_waker = door.waker();

    let local = connection.transport() == TransportKind::Unix;
    let link = connection.into_stream_link(launch.epoch, launch.rank.unwrap_or(u32::MAX));
    let severer = link.severer();
    let (mut sender, mut receiver) = link.split();
    let member = roster::introduce(launch, &door, instance, meet::offers(&door.tcp_addresses(), settings));
    if settings.on_peer_loss == OnPeerLoss::Continue {
        // First: a death may follow the welcome at once, and the launcher has to know by then what it means.
        send_control(sender.as_mut(), &Control::GoesOn, deadline).map_err(|error| lost_coordinator(launch, &error, started))?;
    }
    let welcome = knock(launch, member, sender.as_mut(), receiver.as_mut(), started, deadline)?;
    let (me, topology) = (welcome.rank, Topology::new(welcome.roster));
    if settings.on_peer_loss == OnPeerLoss::Continue && !welcome.goes_on && topology.role(me).works() {
        tracing::warn!("rank {me} would go on after the death of a worker, but not all workers said so: the job ends with the first death");
    }

    if topology.hosts().len() > 1 {
        meet::check_interface(settings)?;
    }
    let neighbours = topology.hosts()[topology.host_of(me)].ranks.clone();
    let inbox = Arc::new(Inbox::default());
    let switchboard = Switchboard::new(key, launch.epoch, me, topology.world(), instance, settings.transport, settings.encrypt);
    let control = ControlLine { sender: Mutex::new(sender), severer, local, last_heard: Mutex::new(Instant::now()) };
    let seat = Seat::new(me, topology, settings, welcome.goes_on, launch.launcher, Some(switchboard), Some(control))?;
    let mut heap = if neighbours.len() > 1 && seat.shares_memory() { None } else { Some(private_heap()?) };
    let seat = Arc::new(seat);
    let mut threads = Vec::new();
    threads.push(answer_door(door, Arc::clone(&seat), Arc::clone(&inbox))?);
    threads.push(listen_to_coordinator(Arc::clone(&seat), receiver)?);
    let board = share_board(&seat, &neighbours, welcome.job, &inbox, started, deadline);
    if let Ok(Some(board)) = &board {
        let _ = seat.board.set(Arc::clone(board));
        heap = heap.or_else(|| Some(Arc::clone(board.heap())));
    }
    let watcher = watcher::start(Arc::clone(&seat));
    let (watcher, result) = match (board, watcher) {
        (Ok(_), Ok((handle, thread))) => {
            threads.push(thread);
            (Some(handle), Ok(()))
        }
        (Err(error), _) | (_, Err(error)) => (None, Err(error)),
    };
    // From here on dropping the job ends its threads.
    let job = Job::assemble(Parts { seat, threads, watcher, door: Some(door_waker), coordinator: met.coordinator.take(), heap })?;
    result?;
    tracing::info!(
        "joined as rank {me} of {} after {:.0} ms; {}",
        job.world(),
        started.elapsed().as_secs_f64() * 1000.0,
        launch.because.join(", ")
    );
    Ok(job)
}

fn open_door(launch: &Launch, settings: &Settings, key: &JobKey, instance: [u8; 16]) -> Result<Door, Error> {
    // Beside the coordinator's name, where it has one, so that a look at the system's sockets shows what belongs together.
    let name = match &launch.meeting {
        Meeting::Unix { name } => format!("{name}.{}", crate::coordinator::hex(&instance[..8])),
        _ => format!("syncline-{}", crate::coordinator::hex(&instance)),
    };
    // Only a job that may span hosts listens on the network; forced TCP on one host stays on loopback.
    let tcp = match (launch.hosts, settings.transport, launch.door) {
        (HostSpan::One, TransportChoice::Tcp, _) => vec![([127, 0, 0, 1], 0).into()],
        (HostSpan::One, ..) => Vec::new(),
        (_, _, Some(door)) => vec![door],
        _ => vec![(std::net::Ipv6Addr::UNSPECIFIED, 0).into()],
    };
    let config = DoorConfig { key: key.clone(), identity: instance, unix: Some(name), tcp, encrypt_tcp: settings.encrypt };
    Door::open(config).map_err(|error| Error::system("start: opening a door for the others", error))
}

/// What the coordinator answered.
struct Welcomed {
    rank: u32,
    /// All workers said that they go on when one dies.
    goes_on: bool,
    job: [u8; 16],
    roster: Vec<MemberInfo>,
}

fn knock(
    launch: &Launch,
    member: MemberInfo<Option<u32>>,
    sender: &mut dyn SendHalf,
    receiver: &mut dyn RecvHalf,
    started: Instant,
    deadline: Deadline,
) -> Result<Welcomed, Error> {
    let myself = Who { rank: launch.rank.unwrap_or(0), host: member.host_name.clone(), pid: member.pid };
    let join = Control::Join {
        member,
        world: launch.world,
        epoch: launch.epoch,
        started_by: launch.launcher.name().into(),
        // The coordinator may have been started with another timeout, or long after this process began to look for it.
        patience_ms: deadline.remaining().map(|left| left.as_millis() as u64),
    };
    send_control(sender, &join, deadline).map_err(|error| lost_coordinator(launch, &error, started))?;
    let patience = deadline.extended(GRACE);
    let mut goes_on = false;
    loop {
        match receive_control(receiver, patience) {
            Ok(Control::Welcome { rank, job, roster, epoch, .. }) => {
                let sound = epoch == launch.epoch
                    && (rank as usize) < roster.len()
                    && roster.iter().enumerate().all(|(index, member)| member.rank as usize == index);
                if !sound {
                    return Err(Error::Refused { at: launch.meeting.to_string(), reason: "its roster makes no sense".into() });
                }
                return Ok(Welcomed { rank, goes_on, job, roster });
            }
            Ok(Control::GoesOn) => goes_on = true,
            // That a process ended says nothing yet: whether that is a death, another message tells.
            Ok(Control::Heartbeat { .. } | Control::Ended { .. }) => {}
            Ok(Control::Refused { reason }) => return Err(Error::Refused { at: launch.meeting.to_string(), reason }),
            Ok(Control::StartTimeout { arrived, missing, text }) => {
                return Err(Error::Missing {
                    world: launch.world,
                    arrived: arrived.into_iter().map(|member| Who { rank: member.rank, host: member.host_name, pid: member.pid }).collect(),
                    missing: missing.into_iter().map(|rank| Who { rank, host: String::new(), pid: 0 }).collect(),
                    expected: format!("hint: expected to start so:\n{text}"),
                    waited: started.elapsed(),
                });
            }
            Ok(Control::Down { rank, cause, detail, reported_by, blames, host_name, pid }) => {
                let fate = fate_of(&cause, &detail, reported_by, blames);
                let (who, how) = match fate.blames {
                    Some(blamed) if blamed != rank => {
                        (Who { rank: blamed, host: String::new(), pid: 0 }, format!("is to blame, says rank {rank}, which {}", fate.how))
                    }
                    _ => (Who { rank, host: host_name, pid }, fate.how),
                };
                let rank = who.rank;
                return Err(Error::PeerLost {
                    operation: "start".into(),
                    who,
                    how,
                    waited: started.elapsed(),
                    hint: format!("look at the output of rank {rank}"),
                });
            }
            Ok(other) => return Err(Error::Refused { at: launch.meeting.to_string(), reason: format!("it answered {other:?}") }),
            Err(ControlError::Link(LinkError::Interrupted)) => {
                return Err(Error::Interrupted { operation: "start".into(), waited: started.elapsed() });
            }
            Err(ControlError::Link(LinkError::Timeout { .. })) => {
                return Err(Error::Missing {
                    world: launch.world,
                    arrived: vec![myself],
                    missing: Vec::new(),
                    expected: format!(
                        "hint: the coordinator at {} took this process in but does not answer; it may be frozen",
                        launch.meeting
                    ),
                    waited: started.elapsed(),
                });
            }
            Err(error) => return Err(lost_coordinator(launch, &error, started)),
        }
    }
}

fn lost_coordinator(launch: &Launch, error: &ControlError, started: Instant) -> Error {
    let how = format!("is gone: the control link ended while the job assembled ({error})");
    if launch.launcher.hosts_coordinator() {
        return Error::LauncherLost { operation: "start".into(), waited: started.elapsed() };
    }
    Error::PeerLost {
        operation: "start".into(),
        who: Who { rank: 0, host: String::new(), pid: 0 },
        how,
        waited: started.elapsed(),
        hint: "rank 0 hosts the coordinator; look at its output".into(),
    }
}

/// Where the door leaves the board that the host's first rank passes in.
#[derive(Default)]
struct Inbox {
    board: Mutex<Option<OwnedFd>>,
    news: Condvar,
}

fn answer_door(mut door: Door, seat: Arc<Seat>, inbox: Arc<Inbox>) -> Result<thread::JoinHandle<()>, Error> {
    let body = move || {
        while !seat.leaving.load(Acquire) {
            for event in door.step(Deadline::never()) {
                let worth_a_line = event.is_worth_a_line();
                match event {
                    DoorEvent::Visitor { hello, fd, connection } => let_in(&seat, &inbox, &hello, fd, connection),
                    DoorEvent::Refused { from, why, count } if worth_a_line => {
                        tracing::warn!("rank {} refused {from}: {why} (number {count})", seat.me)
                    }
                    _ => {}
                }
            }
        }
    };
    thread::Builder::new().name("syncline-door".into()).spawn(body).map_err(|error| Error::system("start: the door's thread", error))
}

fn let_in(seat: &Seat, inbox: &Inbox, hello: &[u8], fd: Option<OwnedFd>, connection: Connection) {
    let from = connection.peer().to_owned();
    let outcome = match Hello::decode(hello) {
        Err(error) => Err(format!("its first word cannot be read: {error}")),
        Ok(Hello { purpose: Purpose::Control, .. }) => Err("it wants to join, but this is not the coordinator".into()),
        Ok(Hello { purpose: Purpose::Board, .. }) => match fd {
            Some(fd) => {
                *inbox.board.lock().expect("no panic while held") = Some(fd);
                inbox.news.notify_all();
                Ok(())
            }
            None => Err("it brought no board".into()),
        },
        Ok(said @ Hello { purpose: Purpose::Lane(lane), .. }) => match &seat.switchboard {
            Some(switchboard) => switchboard.called(&said, lane, fd, connection),
            None => Err("this rank has no links".into()),
        },
    };
    if let Err(why) = outcome {
        tracing::warn!("rank {} refused {from}: {why}", seat.me);
    }
}

fn listen_to_coordinator(seat: Arc<Seat>, receiver: Box<dyn RecvHalf>) -> Result<thread::JoinHandle<()>, Error> {
    let body = move || control_thread::listen(&seat, receiver);
    thread::Builder::new().name("syncline-ctl".into()).spawn(body).map_err(|error| Error::system("start: the control thread", error))
}

/// The board of this host: made by its first rank, mapped by the others. None for a rank that is alone on its host.
fn share_board(
    seat: &Seat,
    neighbours: &[u32],
    job: [u8; 16],
    inbox: &Inbox,
    started: Instant,
    deadline: Deadline,
) -> Result<Option<Arc<Board>>, Error> {
    if neighbours.len() < 2 {
        return Ok(None);
    }
    let operation = "start: sharing memory with the neighbours";
    let board = if neighbours[0] == seat.me {
        let board = Board::create(neighbours.len(), job).map_err(|error| Error::system(operation, error))?;
        let switchboard = seat.switchboard.as_ref().expect("a member of a larger world has one");
        for &rank in &neighbours[1..] {
            let gone = || seat.fates.any_down() || seat.orphaned.load(Acquire);
            match switchboard.pass_board(seat.topology.member(rank), board.fd(), deadline, &gone) {
                Ok(()) => {}
                Err(CallError::Interrupted) => return Err(Error::Interrupted { operation: "start".into(), waited: started.elapsed() }),
                Err(error) => return Err(seat.explain(operation, &seat.suspects(&[rank]), started, &error.to_string())),
            }
        }
        board
    } else {
        let fd = await_board(seat, neighbours[0], inbox, operation, started, deadline)?;
        Board::open(fd, neighbours.len(), job).map_err(|error| Error::system(operation, error))?
    };
    let slot = board.slot(seat.my_slot());
    slot.set_rank(seat.me);
    slot.set_pid(std::process::id());
    slot.beat(crate::seat::monotonic_nanos());
    slot.set_state(State::Running);
    Ok(Some(Arc::new(board)))
}

fn await_board(seat: &Seat, leader: u32, inbox: &Inbox, operation: &str, started: Instant, deadline: Deadline) -> Result<OwnedFd, Error> {
    const LOOK: Duration = Duration::from_millis(50);
    let mut board = inbox.board.lock().expect("no panic while held");
    loop {
        if let Some(fd) = board.take() {
            return Ok(fd);
        }
        if seat.fates.any_down() || seat.orphaned.load(Acquire) {
            drop(board);
            return Err(seat.explain(operation, &seat.suspects(&[leader]), started, "it did not pass the board"));
        }
        if deadline.interrupted() {
            return Err(Error::Interrupted { operation: "start".into(), waited: started.elapsed() });
        }
        if deadline.expired() {
            return Err(seat.late(operation, &[leader], started, " to pass the host's board"));
        }
        board = inbox.news.wait_timeout(board, deadline.slice(LOOK)).expect("no panic while held").0;
    }
}
