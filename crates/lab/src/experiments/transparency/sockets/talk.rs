//! Two hosts -> connected TCP and UDP sockets on both hosts.
//!
//! All kinds of exchanges open their sockets here, with the same time-outs.

use super::{QUIET, TIMEOUT};
use crate::net::Host;
use rustix::net::{
    AddressFamily, Protocol, SocketFlags, SocketType, bind, connect, ipproto, listen, socket_with, sockopt,
};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;

/// The two hosts of an exchange.
pub(in super::super) struct Talk<'a> {
    pub from: &'a Host,
    pub to: &'a Host,
    pub source: IpAddr,
    pub target: IpAddr,
    /// Indices of both hosts' interfaces.
    pub indices: [u32; 2],
    /// Number of the kind of exchange.
    pub number: u8,
}

impl Talk<'_> {
    /// Whether a connection to a closed port is refused. Afterwards, each host has a neighbour entry for the other
    /// host or for the router.
    pub(in super::super) fn is_refused(&self) -> bool {
        let target = SocketAddr::new(self.target, 9);
        matches!(self.connect(target, |_| Ok(())), Err(why) if why.kind() == io::ErrorKind::ConnectionRefused)
    }

    pub(super) fn connected(&self) -> io::Result<(TcpStream, TcpStream)> {
        self.connected_with(|_| Ok(()), |_| Ok(()))
    }

    /// Opens a connection. The two functions configure the sockets before the connection is opened.
    pub(super) fn connected_with(
        &self,
        server: impl FnOnce(&OwnedFd) -> io::Result<()> + Send,
        client: impl FnOnce(&OwnedFd) -> io::Result<()> + Send,
    ) -> io::Result<(TcpStream, TcpStream)> {
        let listener = self.listener(server)?;
        let client = self.connect(listener.local_addr()?, client)?;
        let (server, _) = listener.accept()?;
        server.set_read_timeout(Some(TIMEOUT))?;
        server.set_write_timeout(Some(TIMEOUT))?;
        Ok((client, server))
    }

    pub(super) fn listener(
        &self,
        prepare: impl FnOnce(&OwnedFd) -> io::Result<()> + Send,
    ) -> io::Result<TcpListener> {
        self.to.space().enter(|| {
            let socket = opened(self.target, SocketType::STREAM, ipproto::TCP)?;
            prepare(&socket)?;
            bind(&socket, &SocketAddr::new(self.target, 0))?;
            listen(&socket, 128)?;
            sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(TIMEOUT))?;
            Ok(TcpListener::from(socket))
        })
    }

    pub(super) fn connect(
        &self,
        target: SocketAddr,
        prepare: impl FnOnce(&OwnedFd) -> io::Result<()> + Send,
    ) -> io::Result<TcpStream> {
        let socket = self.from.space().enter(|| {
            let socket = opened(self.source, SocketType::STREAM, ipproto::TCP)?;
            prepare(&socket)?;
            bind(&socket, &SocketAddr::new(self.source, 0))?;
            io::Result::Ok(socket)
        })?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(TIMEOUT))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(TIMEOUT))?;
        connect(&socket, &target)?;
        Ok(TcpStream::from(socket))
    }

    pub(super) fn sender(&self) -> io::Result<UdpSocket> {
        let sender = self.from.space().enter(|| UdpSocket::bind(SocketAddr::new(self.source, 0)))?;
        sender.set_read_timeout(Some(QUIET))?;
        Ok(sender)
    }

    /// Opens a connected sending socket and its receiving socket.
    pub(super) fn datagrams(&self) -> io::Result<(UdpSocket, UdpSocket)> {
        let receiver = self.to.space().enter(|| UdpSocket::bind(SocketAddr::new(self.target, 0)))?;
        receiver.set_read_timeout(Some(QUIET))?;
        let sender = self.sender()?;
        sender.connect(receiver.local_addr()?)?;
        Ok((sender, receiver))
    }
}

pub(super) fn opened(of: IpAddr, kind: SocketType, protocol: Protocol) -> io::Result<OwnedFd> {
    let family = if of.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, Some(protocol))?)
}
