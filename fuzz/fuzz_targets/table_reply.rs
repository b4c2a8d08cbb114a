//! What a table's server answers, as a stranger might send it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    syncline_table::fuzzing::table_reply(data);
});
