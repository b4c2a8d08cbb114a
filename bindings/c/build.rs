//! Gives the shared library its name for the dynamic linker, and keeps it in memory once it is loaded: its threads outlive a `dlclose`.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsyncline.so.0,-z,nodelete");
}
