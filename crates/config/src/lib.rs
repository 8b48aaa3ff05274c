//! A TOML file -> the configuration of a gateway, or all mistakes in the file.
//!
//! The settings of a side apply to the packets that the gateway sends by this side. Settings that a file omits get
//! the defaults of the role. In these defaults, the following stages are on:
//!
//! | | toward the wide side | toward the narrow side |
//! |---|---|---|
//! | wide interface | reassemble | segment, fragment |
//! | border | coalesce, segment, fragment; MSS in both directions | segment, fragment |
//! | router | nothing: its kernel fragments and rejects | nothing |
//!
//! All mistakes are found in one pass. Each message states the line, the key and a fix. Lines after a TOML syntax
//! error may be misread, so only the lines before the error are checked.
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
    Config, DUMMY_ADDRESSES, DontFragment, Fail, LimitsConfig, MssConfig, OwnAddresses, Priority, Queueing, Raise,
    Role, SideConfig, Stage, WideInterfaceConfig,
};
