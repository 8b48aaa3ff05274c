//! A TOML file -> a configuration of the live gateway, or all of its mistakes.
//!
//! The settings of a side apply to the packets that leave by it. Settings that a file omits have the default of the
//! role:
//!
//! | | toward the wide side | toward the narrow side |
//! |---|---|---|
//! | wide interface | reassemble | segment, fragment |
//! | border | coalesce, segment, fragment; MSS in both directions | segment, fragment |
//! | router | nothing: its kernel fragments and rejects | nothing |
//!
//! All mistakes are found in one pass, each with its line, its key and its remedy. Lines behind one that is not
//! TOML may be misread: then only the lines before it are checked.
#![forbid(unsafe_code)]

mod check;
mod file;
mod problem;
mod read;
mod renamed;
mod settings;
mod spelling;
mod syntax;
mod table;
mod value;

pub use engine::Holding;
pub use problem::{Place, Problem, Problems};
pub use settings::{
    Config, DontFragment, Fail, LimitsConfig, MssConfig, NOBODYS, OwnAddresses, Priority, Raise, Role, SideConfig,
    Stage, WideInterfaceConfig,
};
