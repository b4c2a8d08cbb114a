//! What a member says to all others about tables made by name and their rules.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    syncline_table::fuzzing::table_word(data);
});
