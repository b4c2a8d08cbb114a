//! The first message on a connection, as a stranger might send it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    syncline_wire::fuzzing::hello(data);
});
