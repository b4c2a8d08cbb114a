//! A dynamic value, meta and payload, as a stranger might send it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    syncline_wire::fuzzing::value(data);
});
