//! What holds for every header, message and value, and not only for those someone thought of.

use std::net::SocketAddr;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use syncline_tensor::{DType, Shape};
use syncline_wire::message::{Blame, Call, Control, DownCause, Hello, HostId, MemberInfo, Purpose, RoleCode};
use syncline_wire::value::{ALIGNMENT, MEMORY_PER_BYTE};
use syncline_wire::{Fingerprint, Flags, FrameHeader, Kind, Limits, Value};

proptest! {
    #[test]
    fn a_header_comes_back_as_it_went(header in header()) {
        prop_assert_eq!(FrameHeader::decode(&header.encode(), &Limits::default()), Ok(header));
    }

    #[test]
    fn a_header_with_any_one_bit_flipped_is_refused(header in header(), bit in 0..512usize) {
        let mut bytes = header.encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(FrameHeader::decode(&bytes, &Limits::default()).is_err());
    }

    #[test]
    fn meta_with_any_one_bit_flipped_is_refused(mut meta in vec(any::<u8>(), 1..200), bit: usize) {
        let header = FrameHeader::new(Kind::CONTROL).with_meta(&meta).unwrap();
        prop_assert_eq!(header.check_meta(&meta), Ok(()));
        let bit = bit % (meta.len() * 8);
        meta[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(header.check_meta(&meta).is_err());
    }

    #[test]
    fn random_bytes_are_no_header(bytes: [u8; 32], more: [u8; 32]) {
        let mut all = [0; 64];
        all[..32].copy_from_slice(&bytes);
        all[32..].copy_from_slice(&more);
        prop_assert!(FrameHeader::decode(&all, &Limits::default()).is_err());
    }

    #[test]
    fn a_greeting_comes_back_as_it_went(hello in hello()) {
        prop_assert_eq!(Hello::decode(&hello.encode().unwrap()), Ok(hello));
    }

    #[test]
    fn a_control_message_comes_back_as_it_went(control in control()) {
        let bytes = control.encode(&Limits::default()).unwrap();
        prop_assert_eq!(Control::decode(&bytes, &Limits::default()), Ok(control));
    }

    #[test]
    fn a_control_message_cut_short_is_refused(control in control(), cut: usize) {
        let bytes = control.encode(&Limits::default()).unwrap();
        prop_assert!(Control::decode(&bytes[..cut % bytes.len()], &Limits::default()).is_err());
    }

    #[test]
    fn a_value_comes_back_as_it_went_within_its_memory(value in value()) {
        let encoded = value.encode(&Limits::default()).unwrap();
        let payload = encoded.payload_to_vec();
        prop_assert_eq!(payload.len() as u64, encoded.payload_len());
        prop_assert_eq!(encoded.meta().len() % 8, 0);
        let decoded = Value::decode(encoded.meta(), &payload, &Limits::default()).unwrap();
        prop_assert!(decoded.memory() <= MEMORY_PER_BYTE * (encoded.meta().len() + payload.len()));
        prop_assert_eq!(&decoded, &value);
        prop_assert_eq!(decoded.clone().into_owned(), decoded);
    }

    #[test]
    fn every_item_of_a_payload_is_aligned(value in value()) {
        let encoded = value.encode(&Limits::default()).unwrap();
        let mut offset = 0;
        let mut gap = false;
        for slice in encoded.payload() {
            // A slice that does not begin at a multiple must be the gap before one that does.
            prop_assert!(!(gap && offset % ALIGNMENT != 0));
            gap = offset % ALIGNMENT != 0;
            offset += slice.len();
        }
        prop_assert!(!gap);
    }

    #[test]
    fn a_value_cut_short_is_refused(value in value(), cut: usize) {
        let encoded = value.encode(&Limits::default()).unwrap();
        let payload = encoded.payload_to_vec();
        let meta = &encoded.meta()[..cut % encoded.meta().len()];
        prop_assert!(Value::decode(meta, &payload, &Limits::default()).is_err());
        if !payload.is_empty() {
            let payload = &payload[..cut % payload.len()];
            prop_assert!(Value::decode(encoded.meta(), payload, &Limits::default()).is_err());
        }
    }
}

fn header() -> impl Strategy<Value = FrameHeader> {
    let limits = Limits::default();
    let numbers = (any::<u16>(), any::<u32>(), any::<u32>(), any::<u64>(), any::<[u8; 16]>());
    (numbers, 0..=limits.max_meta, 0..=limits.max_payload, any::<u32>()).prop_map(
        |((kind, epoch, source, sequence, print), meta_len, payload_len, meta_crc)| FrameHeader {
            kind: Kind(kind),
            epoch,
            source,
            sequence,
            fingerprint: Fingerprint(print),
            meta_len,
            flags: Flags::NONE,
            payload_len,
            meta_crc,
        },
    )
}

fn hello() -> impl Strategy<Value = Hello> {
    let purpose = prop_oneof![Just(Purpose::Control), Just(Purpose::Board), any::<u32>().prop_map(Purpose::Lane)];
    (purpose, any::<Option<u32>>(), any::<u32>(), any::<[u8; 16]>()).prop_map(|(purpose, rank, epoch, instance)| Hello {
        purpose,
        rank,
        epoch,
        instance,
    })
}

fn member<S: Strategy>(rank: S) -> impl Strategy<Value = MemberInfo<S::Value>> {
    let role = prop_oneof![Just(RoleCode::Worker), Just(RoleCode::Server), Just(RoleCode::Both)];
    let host = (any::<[u8; 16]>(), any::<u64>()).prop_map(|(boot, network)| HostId { boot, network });
    let addresses = vec((any::<std::net::IpAddr>(), any::<u16>()).prop_map(SocketAddr::from), 0..5);
    let names = (".{0,60}", "[a-z0-9-]{0,60}");
    (rank, role, any::<u32>(), host, names, addresses, any::<[u8; 16]>(), any::<Option<u32>>()).prop_map(
        |(rank, role, pid, host, (host_name, unix_name), addresses, instance, local_rank_hint)| MemberInfo {
            rank,
            role,
            pid,
            pid_space: u64::from(pid) << 7,
            host,
            host_name,
            unix_name,
            addresses,
            instance,
            local_rank_hint,
        },
    )
}

fn control() -> impl Strategy<Value = Control> {
    let text = || ".{0,100}";
    let ranks = || vec(any::<u32>(), 0..10);
    prop_oneof![
        (1..=65_536u32)
            .prop_flat_map(|world| (member(option::of(0..world)), Just(world), any::<u32>(), ".{0,40}", any::<Option<u64>>()))
            .prop_map(|(member, world, epoch, started_by, patience_ms)| Control::Join { member, world, epoch, started_by, patience_ms }),
        (any::<u32>(), any::<u32>(), any::<[u8; 16]>(), any::<u64>(), vec(member(any::<u32>()), 0..6))
            .prop_map(|(rank, epoch, job, timeout_ms, roster)| Control::Welcome { rank, epoch, job, timeout_ms, roster }),
        text().prop_map(|reason| Control::Refused { reason }),
        any::<u64>().prop_map(|count| Control::Heartbeat { count }),
        (any::<u32>(), down_cause(), text(), any::<Option<u32>>(), option::of(blame()), (".{0,40}", any::<u32>())).prop_map(
            |(rank, cause, detail, reported_by, blames, (host_name, pid))| Control::Down {
                rank,
                cause,
                detail,
                reported_by,
                blames,
                host_name,
                pid
            }
        ),
        blame().prop_map(Control::Blaming),
        Just(Control::Leaving),
        any::<u32>().prop_map(|rank| Control::Left { rank }),
        Just(Control::AllLeft),
        Just(Control::GoesOn),
        any::<u32>().prop_map(|rank| Control::Ended { rank }),
        (any::<u64>(), any::<[u8; 16]>(), call(), vec(any::<u8>(), 0..100))
            .prop_map(|(number, fingerprint, call, payload)| Control::Propose { number, fingerprint, call, payload }),
        (any::<u64>(), text(), vec(any::<u8>(), 0..100)).prop_map(|(number, operation, payload)| Control::Agreed {
            number,
            operation,
            payload
        }),
        (any::<u64>(), (any::<u32>(), call()), (any::<u32>(), call())).prop_map(|(number, one, other)| Control::Disagreed {
            number,
            one,
            other
        }),
        any::<u64>().prop_map(|number| Control::AskMissing { number }),
        (any::<u64>(), vec(any::<u8>(), 0..100)).prop_map(|(number, payload)| Control::Post { number, payload }),
        (any::<u32>(), any::<u64>(), vec(any::<u8>(), 0..100)).prop_map(|(from, number, payload)| Control::Posted {
            from,
            number,
            payload
        }),
        (any::<u32>(), any::<u64>(), text()).prop_map(|(rank, number, refusal)| Control::Answer { rank, number, refusal }),
        (any::<u64>(), ranks()).prop_map(|(number, ranks)| Control::Missing { number, ranks }),
        (option::of(blame()), text()).prop_map(|(blame, reason)| Control::Abort { blame, reason }),
        (vec(member(any::<u32>()), 0..4), ranks(), text()).prop_map(|(arrived, missing, text)| Control::StartTimeout {
            arrived,
            missing,
            text
        }),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    (".{0,60}", ".{0,60}").prop_map(|(operation, site)| Call { operation, site })
}

fn blame() -> impl Strategy<Value = Blame> {
    (any::<u32>(), any::<bool>()).prop_map(|(rank, silent)| Blame { rank, silent })
}

fn down_cause() -> impl Strategy<Value = DownCause> {
    prop_oneof![
        any::<i32>().prop_map(|signal| DownCause::Killed { signal }),
        any::<i32>().prop_map(|code| DownCause::Exited { code }),
        Just(DownCause::Disconnected),
        any::<u64>().prop_map(|millis| DownCause::Silent { millis }),
    ]
}

/// Any value but NaN, which equals nothing and is tested by its bits elsewhere.
fn value() -> impl Strategy<Value = Value<'static>> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-300..300i64).prop_map(Value::from),
        any::<f64>().prop_filter("NaN equals nothing", |number| !number.is_nan()).prop_map(Value::from),
        ".{0,60}".prop_map(Value::from),
        vec(any::<u8>(), 0..60).prop_map(Value::from),
        (0..3000usize).prop_map(|len| Value::from("ü".repeat(len))),
        (0..3000usize, any::<u8>()).prop_map(|(len, byte)| Value::from(vec![byte; len])),
        tensor(),
    ];
    leaf.prop_recursive(6, 60, 8, |inner| {
        let key = inner.clone().prop_filter("a key is not nil", |key| *key != Value::Nil);
        prop_oneof![vec(inner.clone(), 0..8).prop_map(Value::List), vec((key, inner), 0..6).prop_map(Value::Map),]
    })
}

fn tensor() -> impl Strategy<Value = Value<'static>> {
    (proptest::sample::select(DType::ALL.to_vec()), vec(0..5usize, 0..4), any::<u8>()).prop_map(|(dtype, dims, byte)| {
        let shape = Shape::new(&dims).unwrap();
        let data = vec![byte; shape.byte_len(dtype)];
        Value::tensor(dtype, shape, data).unwrap()
    })
}
