"""Which addresses are of the public internet, in every way that one can be written."""

import pytest

from reliq.domain.addresses import is_public

PUBLIC = [
    "1.1.1.1",
    "93.184.216.34",
    "2606:4700:4700::1111",
    "::ffff:1.1.1.1",  # mapped
    "2002:101:101::1",  # 6to4 of 1.1.1.1
    "64:ff9b::101:101",  # NAT64 of 1.1.1.1
    "2a00:1450:4001::5efe:101:101",  # ISATAP of 1.1.1.1
]
REFUSED = [
    "0.0.0.0",  # noqa: S104
    "10.0.0.1",
    "100.64.0.1",
    "100.127.255.254",
    "127.0.0.1",
    "127.255.0.9",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.0.8",
    "192.0.0.170",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.7",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fc00::1",
    "fd12:3456::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    "3ffe::1",
    "3fff::1",
    "2a00:1450:4001::5efe:7f00:1",  # ISATAP of 127.0.0.1
    "2a00:1450:4001::200:5efe:10.0.0.1",
    "100::1",
    "4000::1",
    "::ffff:127.0.0.1",  # mapped
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",  # compatible
    "::10.0.0.1",
    "2002:7f00:1::",  # 6to4 of 127.0.0.1
    "2002:a00:1::1",
    "64:ff9b::7f00:1",  # NAT64 of 127.0.0.1
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::101:101",  # NAT64 of somebody's own network, whatever is behind it
    "64:ff9b:1:7f00:0:100::",
    "2001:0:101:101::80ff:fffe",  # Teredo: the client is 127.0.0.1
    "2001:0:7f00:1::fefe:fefe",  # the server is 127.0.0.1
    "2130706433",
    "0x7f.1",
    "0177.0.0.1",
    "127.1",
    "①②⑦.0.0.1",
    "localhost",
    "",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_public_internet_is_one(address):
    assert is_public(address)


@pytest.mark.parametrize("address", REFUSED)
def test_any_other_is_refused_however_it_is_written(address):
    assert not is_public(address)
