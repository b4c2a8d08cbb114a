//! Keeps the module in memory once Lua has loaded it: Lua unloads modules when it closes, and this one has a last word at the end of the process.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
