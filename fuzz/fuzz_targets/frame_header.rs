//! The 64 bytes in front of every frame, as a stranger might send them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    syncline_wire::fuzzing::frame_header(data);
});
