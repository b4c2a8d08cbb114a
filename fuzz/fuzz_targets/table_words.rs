//! Numbers in few bits, as a stranger might send them to a table's server.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    syncline_table::fuzzing::table_words(data);
});
