//! What a member and the coordinator tell each other, as a stranger might send it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    syncline_wire::fuzzing::control_message(data);
});
