"""
Is an address of the public internet? Whoever calls where strangers tell him to asks this first.

IPv6 has many ways of writing an IPv4 address, and a gateway on the way turns them back: each is
unwrapped, and what is inside must be public, too. Python's own `is_global` says yes to several of
them, and to multicast.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

_UNICAST: Final = IPv6Network("2000::/3")
"""Where public addresses of IPv6 are; everything else is loopback, local, multicast or unassigned."""

_NAT64: Final = IPv6Network("64:ff9b::/96")
"""The well-known prefix. That of 64:ff9b:1::/48 is for networks of one's own, and so not public."""

_COMPATIBLE: Final = IPv6Network("::/96")
_LOW_BITS: Final = 0xFFFF_FFFF

_SHARED: Final = (
    IPv4Network("100.64.0.0/10"),  # of providers' own networks
    IPv4Network("192.0.0.0/24"),  # of protocols; not all versions of Python know the whole of it
    IPv4Network("192.88.99.0/24"),  # relays of 6to4
    IPv4Network(
        "168.63.129.16/32"
    ),  # answers from within the machine in one large cloud, and knows its secrets
)
_ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""Of an address of IPv6 the third group of 32 bits, where the last one is an address of IPv4 (RFC 5214)."""

_UNUSED: Final = (
    IPv6Network("3ffe::/16"),  # once of an experiment, given back
    IPv6Network("3fff::/20"),  # of documentation
)


def is_public(text: str) -> bool:
    """Tell whether an address, as a resolver writes it, is one of the public internet."""
    try:
        found = ip_address(text)
    except ValueError:
        return False
    return all(_is_public(address) for address in _unwrapped(found))


def _unwrapped(address: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """Return what an address stands for: itself, or the addresses of IPv4 that are written in it."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address.sixtofour]
    if address.teredo is not None:
        return [*address.teredo]
    inside = IPv4Address(int(address) & _LOW_BITS)
    if address in _NAT64 or address in _COMPATIBLE:
        return [inside]
    return [address, inside] if int(address) >> 32 & _LOW_BITS in _ISATAP else [address]


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SHARED)
    return address in _UNICAST and not any(address in network for network in _UNUSED)
