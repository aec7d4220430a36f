//! `libhaul_engine_fake.so` under compiled C programs, which use a DSA as any program does.
//!
//! - `setup`: the library, a fake's folder, and compiled programs;
//! - `device`: what a program sees and submits;
//! - `children`: forks.

mod setup;

mod device;

mod children;
