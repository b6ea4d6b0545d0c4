"""The addresses that are called, in every spelling that some program takes for an address."""

from __future__ import annotations

import ipaddress

import pytest

from agentcore_site.outbound import AddressRefused, OutboundPolicy
from agentcore_site.outbound.addresses import AddressVerdict, AllowList

NONE = OutboundPolicy()
LOOPBACK = OutboundPolicy(AllowList.of(["127.0.0.0/8", "::1/128", "localhost"]))  # what `manage.py up` allows
EVERYTHING = OutboundPolicy(AllowList.of(["0.0.0.0/0", "::/0", "localhost"]))

# Spellings of 127.0.0.1, and of other hosts that look like one: malformed wherever they are entered.
DISGUISED = [
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0177.0.0.1/",
    "http://017700000001/",
    "http://127.1/",
    "http://127.0.1/",
    "http://127.0.0.1./",
    "http://①②⑦.0.0.1/",
    "http://１２７.0.0.1/",
    "http://127。0。0。1/",
    "http://127.0.0.1%00.example.org/",
    "http://127%2e0.0.1/",
    "http://[fe80::1%25eth0]/",
    "http://example.org@127.0.0.1/",
    "http://127.0.0.1@example.org/",
    "http://me:secret@example.org/",
    "http://@example.org/",
    "http://example.org\\@127.0.0.1/",
    "http://a b/",
    "http://a\tb/",
    "http://a\n.example.org/",
    "http://example.org:99999/",
    "http://example.org:0/",
    "http://example.org:port/",
    "http://x..y/",
    "http://-/",
    "http://[::1/",
    "http://",
    "//example.org/",
    "example.org",
    "ftp://example.org/",
    "file:///etc/passwd",
    "",
]
HERE = [
    "http://127.0.0.1/",
    "http://127.9.9.9:8080/x",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b:1::7f00:1]/",
    "http://[64:ff9b:1:7f00:0:100::]/",
    "http://[2002:7f00:1::]/",
]
PRIVATE = [
    "http://10.1.2.3/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://198.18.0.1/",
    "http://192.0.2.1/",
    "http://[fc00::1]/",
    "http://[fd12::1]/",
    "http://[fec0::1]/",
    "http://[2001:db8::1]/",
    "http://[::ffff:10.0.0.1]/",
    "http://[64:ff9b::a00:1]/",
]
NEVER = [
    "http://0.0.0.0/",
    "http://169.254.169.254/latest/meta-data",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://224.0.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://[::]/",
    "http://[fe80::1]/",
    "http://[fd00:ec2::254]/",
    "http://[ff02::1]/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:0.0.0.0]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::a9fe:a9fe]/",
    "http://[2002:a9fe:a9fe::]/",
    "http://[2001:0:a9fe:a9fe::1]/",
]
OPEN = [
    "https://api.example.org/v1",
    "https://api.example.org.:8443/v1?a=b",
    "https://münchen.example/",
    "http://1.1.1.1/",
    "http://172.32.0.1/",
    "http://[2606:4700::1111]/",
    "http://[::ffff:1.1.1.1]/",
    "http://[64:ff9b::101:101]/",
]


def called(policy: OutboundPolicy, address: str) -> bool:
    try:
        policy.target(address)
    except AddressRefused as error:
        assert len(str(error)) > 20  # a sentence
        return False
    return True


@pytest.mark.parametrize("address", DISGUISED)
def test_a_malformed_or_disguised_address_is_refused_under_any_allowance(address: str) -> None:
    assert not called(NONE, address) and not called(EVERYTHING, address)


@pytest.mark.parametrize("address", HERE)
def test_this_host_is_called_only_where_loopback_is_allowed(address: str) -> None:
    assert not called(NONE, address) and called(LOOPBACK, address)


@pytest.mark.parametrize("address", PRIVATE)
def test_only_a_listed_private_network_is_called(address: str) -> None:
    assert not called(NONE, address) and not called(LOOPBACK, address) and called(EVERYTHING, address)


@pytest.mark.parametrize("address", NEVER)
def test_link_local_metadata_and_reserved_addresses_are_never_called(address: str) -> None:
    assert not called(NONE, address) and not called(EVERYTHING, address)


@pytest.mark.parametrize("address", OPEN)
def test_the_open_internet_is_called(address: str) -> None:
    assert called(NONE, address)


@pytest.mark.parametrize("host", ["redis", "db.internal", "printer.local", "x.localhost", "router.home.arpa"])
def test_a_name_of_this_network_needs_an_entry_of_its_own(host: str) -> None:
    assert not called(NONE, f"http://{host}/")
    assert called(OutboundPolicy(AllowList.of([host])), f"http://{host}:8080/")


def test_a_listed_host_may_be_anywhere_but_where_nothing_is_called() -> None:
    listed = AllowList.of(["gpu.example.org", "*.lab.example.org"])
    for host in ("gpu.example.org", "a.lab.example.org"):
        assert listed.judge(ipaddress.ip_address("10.0.0.5"), host=host) is AddressVerdict.CALLED
        assert listed.judge(ipaddress.ip_address("169.254.169.254"), host=host) is AddressVerdict.NEVER
    for host in ("lab.example.org", "other.example.org", ""):
        assert listed.judge(ipaddress.ip_address("10.0.0.5"), host=host) is AddressVerdict.PRIVATE


@pytest.mark.parametrize("entry", ["http://a.example", "10.0.0.0/33", "a b", "*", "a.example:80", "300.1.1.1/8"])
def test_an_entry_that_is_no_host_or_network_stops_the_start(entry: str) -> None:
    with pytest.raises(ValueError, match="no host name, address or network"):
        AllowList.of([entry])
