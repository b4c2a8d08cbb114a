//! One of everything that travels, small enough to read in hex; shared by the golden test and the fuzz smoke test.

#![allow(dead_code, reason = "each test takes what it needs")]

use syncline_tensor::{DType, Shape};
use syncline_wire::message::{Blame, Call, Control, DownCause, Hello, HostId, MemberInfo, Purpose, RoleCode};
use syncline_wire::value::RAW_FROM;
use syncline_wire::{Fingerprint, FrameHeader, Kind, Value};

/// Headers with the meta they announce.
pub(crate) fn frames() -> Vec<(&'static str, FrameHeader, &'static [u8])> {
    let barrier = FrameHeader {
        epoch: 1,
        source: 2,
        sequence: 3,
        fingerprint: Fingerprint::of("barrier").group(0).finish(),
        ..FrameHeader::new(Kind::BARRIER)
    };
    let data = FrameHeader { epoch: 0x0102_0304, source: 0xff, sequence: u64::MAX, payload_len: 3 << 30, ..FrameHeader::new(Kind::DATA) };
    let meta: &[u8] = b"meta";
    vec![
        ("the smallest frame", FrameHeader::new(Kind::HEARTBEAT), b""),
        ("rank 2 arrives at its third barrier", barrier, b""),
        ("three GiB of data behind four bytes of meta", data.with_meta(meta).unwrap(), meta),
    ]
}

/// Descriptions of operations.
pub(crate) fn fingerprints() -> Vec<(&'static str, Fingerprint)> {
    vec![
        ("of nothing", Fingerprint::NONE),
        ("barrier in group 0", Fingerprint::of("barrier").group(0).finish()),
        ("push of a named f32 matrix", Fingerprint::of("push").name("weights").dtype(DType::F32).shape(&[2, 3]).finish()),
        ("every kind of field", Fingerprint::of("x").text("t", "é").number("n", 1).bytes("b", &[0]).finish()),
    ]
}

/// Greetings.
pub(crate) fn hellos() -> Vec<(&'static str, Hello)> {
    let hello = Hello { purpose: Purpose::Control, rank: None, epoch: 0, instance: *b"sixteen bytes of" };
    vec![
        ("a newcomer to the coordinator", hello),
        ("a neighbour to the board", Hello { purpose: Purpose::Board, rank: Some(1), ..hello }),
        ("rank 300 on lane 2", Hello { purpose: Purpose::Lane(2), rank: Some(300), epoch: 7, ..hello }),
    ]
}

fn member(rank: u32) -> MemberInfo {
    MemberInfo {
        rank,
        role: RoleCode::Both,
        pid: 1000 + rank,
        pid_space: 4_026_531_836,
        host: HostId { boot: [0xb0; 16], network: 4_026_531_840 },
        host_name: "node".into(),
        unix_name: "sl".into(),
        addresses: vec!["10.0.0.1:4000".parse().unwrap(), "[fd00::1]:4000".parse().unwrap()],
        instance: [0x1d; 16],
        local_rank_hint: None,
    }
}

/// Every control message, in the order of their numbers.
pub(crate) fn controls() -> Vec<(&'static str, Control)> {
    let call = |operation: &str, line: u32| Call { operation: operation.into(), site: format!("train.py:{line}") };
    let down = |cause| Control::Down {
        rank: 2,
        cause,
        detail: "d".into(),
        reported_by: Some(1),
        blames: Some(Blame { rank: 3, silent: true }),
        host_name: "h".into(),
        pid: 9,
    };
    vec![
        (
            "join as rank 1 of 4",
            Control::Join {
                member: member(0).with_rank(Some(1)),
                world: 4,
                epoch: 0,
                started_by: "mpirun".into(),
                patience_ms: Some(30_000),
            },
        ),
        ("welcome to a world of one", Control::Welcome { rank: 0, epoch: 1, job: [0x0b; 16], timeout_ms: 30_000, roster: vec![member(0)] }),
        ("refused", Control::Refused { reason: "wrong world".into() }),
        ("heartbeat", Control::Heartbeat { count: 300 }),
        ("down: killed", down(DownCause::Killed { signal: 9 })),
        ("down: exited", down(DownCause::Exited { code: -1 })),
        ("down: disconnected", down(DownCause::Disconnected)),
        ("down: silent", down(DownCause::Silent { millis: 30_000 })),
        ("leaving", Control::Leaving),
        ("left", Control::Left { rank: 2 }),
        ("all left", Control::AllLeft),
        ("abort", Control::Abort { blame: Some(Blame { rank: 2, silent: false }), reason: "rank 2 is gone".into() }),
        ("start timeout", Control::StartTimeout { arrived: vec![member(0), member(2)], missing: vec![1, 3], text: "by mpirun".into() }),
        ("blaming", Control::Blaming(Blame { rank: 1, silent: true })),
        ("ended", Control::Ended { rank: 2 }),
        ("propose", Control::Propose { number: 2, fingerprint: [0xf1; 16], call: call("array of 10 float32", 14), payload: vec![1, 2, 3] }),
        ("agreed", Control::Agreed { number: 2, operation: "array of 10 float32".into(), payload: vec![1, 2, 3] }),
        (
            "disagreed",
            Control::Disagreed { number: 2, one: (0, call("array of 10 float32", 14)), other: (2, call("matrix of 3 x 4 float32", 19)) },
        ),
        ("ask missing", Control::AskMissing { number: 2 }),
        ("missing", Control::Missing { number: 2, ranks: vec![1, 3] }),
        ("goes on", Control::GoesOn),
        ("post", Control::Post { number: 3, payload: vec![1, 2] }),
        ("posted", Control::Posted { from: 1, number: 3, payload: vec![1, 2] }),
        ("answer", Control::Answer { rank: 1, number: 3, refusal: "no room".into() }),
    ]
}

/// Every type of value and some of their combinations.
pub(crate) fn values() -> Vec<(&'static str, Value<'static>)> {
    let tensor = |dtype, dims: &[usize], data: &[u8]| Value::tensor(dtype, Shape::new(dims).unwrap(), data.to_vec()).unwrap();
    let two_floats = [1.0f32.to_le_bytes(), (-2.0f32).to_le_bytes()].concat();
    vec![
        ("nil", Value::Nil),
        ("false", Value::from(false)),
        ("true", Value::from(true)),
        ("int 258", Value::from(258)),
        ("int -2", Value::from(-2)),
        ("int 2^55, the first that needs a word of its own", Value::from(1 << 55)),
        ("float 1.5", Value::from(1.5)),
        ("empty string", Value::from("")),
        ("string né", Value::from("né")),
        ("nine bytes", Value::from(vec![1, 2, 3, 4, 5, 6, 7, 8, 9])),
        ("empty list", Value::List(vec![])),
        ("list of nil and a list of 1", Value::List(vec![Value::Nil, Value::List(vec![Value::from(1)])])),
        ("map of lr to 0.5", Value::Map(vec![(Value::from("lr"), Value::from(0.5))])),
        ("float32 tensor (2,)", tensor(DType::F32, &[2], &two_floats)),
        ("empty int64 tensor (0, 3)", tensor(DType::I64, &[0, 3], &[])),
        (
            "two uint8 tensors, the second at byte 64 of the payload",
            Value::List(vec![tensor(DType::U8, &[], &[7]), tensor(DType::U8, &[1, 2], &[8, 9])]),
        ),
    ]
}

/// Strings and bytes around the length from which they travel in the payload: nothing to read in hex.
pub(crate) fn long_values() -> Vec<Value<'static>> {
    let around = [RAW_FROM - 1, RAW_FROM, RAW_FROM + 1];
    let texts = around.map(|len| Value::from("a".repeat(len)));
    let bytes = around.map(|len| Value::from(vec![0xff; len]));
    vec![texts.to_vec().into(), bytes.to_vec().into()]
}
