//! Requests to the kernel's network stack -> answers.
//!
//! This module contains the connection, which sends any request and reads the answers. The methods for single
//! requests are in [`interfaces`](crate::interfaces), [`addresses`](crate::addresses), [`routes`](crate::routes)
//! and [`neighbours`](crate::neighbours).

use crate::failure::{failed, said};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage, NetlinkPayload,
    NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::fmt::Display;
use std::io;

/// A netlink connection to the namespace in which the connection was opened.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence_number: u32,
}

impl Netlink {
    /// Opens a connection in the calling thread's namespace. For another namespace:
    /// `namespace.enter(Netlink::open)`.
    ///
    /// # Errors
    /// The process cannot open another socket.
    pub fn open() -> io::Result<Netlink> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            socket.set_cap_ack(true)?;
            socket.set_ext_ack(true)?;
            socket.set_netlink_get_strict_chk(true)?;
            Ok(Netlink { socket, sequence_number: 0 })
        };
        open().map_err(|why| failed("cannot open a netlink socket", &why))
    }

    /// Sends a command. `what` names the failed action in errors.
    pub(crate) fn order(&mut self, order: RouteNetlinkMessage, flags: u16, what: impl Display) -> io::Result<()> {
        self.exchange(order, flags | NLM_F_ACK).map(drop).map_err(|refusal| refusal.about(what))
    }

    /// Queries one object, such as an interface or a route. `what` names the failed action in errors.
    pub(crate) fn ask(
        &mut self,
        question: RouteNetlinkMessage,
        what: impl Display,
    ) -> io::Result<RouteNetlinkMessage> {
        let answers = self.exchange(question, NLM_F_ACK).map_err(|refusal| refusal.about(&what))?;
        answers.into_iter().next().ok_or_else(|| malformed(what))
    }

    /// Queries all objects of a kind. `what` names the failed action in errors.
    ///
    /// # Errors
    /// The kernel rejects the query, or objects change faster than they can be read (`Interrupted`).
    pub fn list(
        &mut self,
        question: RouteNetlinkMessage,
        what: impl Display,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        for _ in 0..TRIES {
            match self.exchange(question.clone(), NLM_F_DUMP) {
                Err(NetlinkError { why, .. }) if why.kind() == io::ErrorKind::Interrupted => {}
                answers => return answers.map_err(|refusal| refusal.about(what)),
            }
        }
        let text = format!("{what}: the list changes faster than it can be read; try again later");
        Err(io::Error::new(io::ErrorKind::Interrupted, text))
    }

    fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        self.send(message, flags)?;
        let mut answers = Vec::new();
        let mut has_changed = false;
        loop {
            let bytes = until_done(|| self.socket.recv_from_full())?.0;
            for part in messages(&bytes) {
                let message = part?;
                if message.header.sequence_number != self.sequence_number {
                    continue;
                }
                has_changed |= message.header.flags & NLM_F_DUMP_INTR != 0;
                match message.payload {
                    NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                    NetlinkPayload::Error(end) if end.code.is_some() => {
                        return Err(NetlinkError { why: end.to_io(), words: words(&end.header) });
                    }
                    NetlinkPayload::Done(end) if end.code < 0 => {
                        return Err(io::Error::from_raw_os_error(-end.code).into());
                    }
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) if has_changed => {
                        return Err(io::Error::from(io::ErrorKind::Interrupted).into());
                    }
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(answers),
                    _ => {}
                }
            }
        }
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence_number = self.sequence_number.wrapping_add(1);
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST | flags;
        message.header.sequence_number = self.sequence_number;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        until_done(|| self.socket.send(&bytes, 0)).map(drop)
    }
}

/// Returns the messages of one read, up to the first malformed message.
pub(crate) fn messages(bytes: &[u8]) -> impl Iterator<Item = io::Result<NetlinkMessage<RouteNetlinkMessage>>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let len = NetlinkBuffer::new_checked(&rest).map_or(0, |buffer| buffer.length() as usize);
        let message = NetlinkMessage::deserialize(rest).map_err(|why| malformed(format!("netlink: {why}")));
        rest = if message.is_ok() { rest.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or(&[]) } else { &[] };
        Some(message)
    })
}

/// Repeats a call until no signal interrupts it.
pub(crate) fn until_done<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Returns the error for an answer that cannot be parsed.
pub(crate) fn malformed(what: impl Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what}: cannot parse the kernel's answer"))
}

struct NetlinkError {
    why: io::Error,
    words: Option<String>,
}

impl NetlinkError {
    fn about(self, what: impl Display) -> io::Error {
        match self.why.kind() {
            io::ErrorKind::InvalidData => self.why,
            _ => said(what, &self.why, self.words.as_deref()),
        }
    }
}

impl From<io::Error> for NetlinkError {
    fn from(why: io::Error) -> NetlinkError {
        NetlinkError { why, words: None }
    }
}

/// Returns the kernel's explanation of an error: the attribute NLMSGERR_ATTR_MSG after the rejected header. `None`
/// if there is no explanation.
fn words(refused: &[u8]) -> Option<String> {
    let attributes = refused.get(HEADER_LEN..)?;
    let text = NlasIterator::new(attributes).flatten().find(|attribute| attribute.kind() == ERROR_TEXT)?;
    let text = String::from_utf8_lossy(text.value()).trim_end_matches('\0').to_owned();
    (!text.is_empty()).then_some(text)
}

const TRIES: usize = 10;
/// Alignment of netlink messages (NLMSG_ALIGNTO), in bytes.
const ALIGNMENT: usize = 4;
/// Length of a netlink message's header (NLMSG_HDRLEN), in bytes.
const HEADER_LEN: usize = 16;
/// The attribute NLMSGERR_ATTR_MSG.
const ERROR_TEXT: u16 = 1;
