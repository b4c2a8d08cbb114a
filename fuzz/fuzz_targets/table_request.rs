//! What a worker asks of a table's server, as a stranger might send it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    syncline_table::fuzzing::table_request(data);
});
