"""Addresses that a client names: which of them may be called, and fetching documents from them.

The operator allows origins: ``example.org`` is HTTPS on its usual port, ``http://example.org:8080`` exactly that. Where
such a name leads is looked at as well: an address that is not public is refused unless the operator opened that very
host or address in ``server.private_hosts``. A fetch checks the addresses that it then connects to, so a name that
changes in between gains nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from collections.abc import Collection, Iterator, Sequence
from email.message import Message
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import BinaryIO
from urllib.parse import unquote

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from mineru_engine.errors import ErrorCode
from mineru_engine.server.intake import Upload
from mineru_engine.server.problems import RequestError
from mineru_engine.settings import ServerSettings, Settings

__all__ = ("check_server_url", "fetch_all")

_MAX_URL = 2000
_MAX_HOPS = 5
_CHUNK = 1 << 18
_REDIRECTS = frozenset([301, 302, 303, 307, 308])
_PROTOCOL = IPv4Network("192.0.0.0/24")  # a cloud has its metadata here; older Pythons think it public
_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")


class _NotPublicError(OSError):
    """A name leads to an address that was not opened for it."""


async def check_server_url(url: str, settings: Settings) -> str:
    """See whether a request may name this model server.

    :return: the URL as it will be used.
    :raises RequestError: if its host is not in ``server.vlm_hosts``, or leads to an address that is not open.
    """
    hosts, private = settings.server.vlm_hosts, settings.server.private_hosts
    with _as_problem("server_url"):
        parsed = _checked(url, hosts, private)
        await _Resolver(private).resolve(parsed.raw_host or "", parsed.port or 0)
    return str(parsed)


async def fetch_all(urls: Sequence[str], upload: Upload, settings: ServerSettings) -> None:
    """Fetch documents into an upload, one after the other, within the size and the time of one request.

    :raises RequestError: if a URL is not allowed, or gives no document.
    """
    room = settings.max_request_mb << 20
    connector = aiohttp.TCPConnector(
        resolver=_Resolver(settings.private_hosts), use_dns_cache=False, force_close=True, limit=1
    )
    timeout = aiohttp.ClientTimeout(total=settings.url_timeout)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), headers={"User-Agent": "mineru"}
    ) as session:
        for index, url in enumerate(urls):
            with _as_problem(f"urls.{index}"), tempfile.TemporaryFile(dir=upload.directory) as stream:
                name = await _fetch(session, url, stream, room, settings)
                room -= stream.tell()
                stream.seek(0)
                await upload.add(name, stream)


async def _fetch(
    session: aiohttp.ClientSession, text: str, stream: BinaryIO, room: int, settings: ServerSettings
) -> str:
    """Write what a URL gives; redirects are followed as far as their targets are allowed too.

    :return: the document's name.
    """
    url = _checked(text, settings.url_hosts, settings.private_hosts)
    for _ in range(_MAX_HOPS):
        async with session.get(url, allow_redirects=False) as response:
            if response.status in _REDIRECTS:
                url = _redirected(url, response.headers.get("Location", ""), settings)
                continue
            if response.status != 200:
                raise _unfetched(f"{url.host} answered {response.status}")
            async for chunk in response.content.iter_chunked(_CHUNK):
                room -= len(chunk)
                if room < 0:
                    raise RequestError(
                        f"the documents at these addresses are larger than {settings.max_request_mb} MiB",
                        code=ErrorCode.FILE_TOO_LARGE,
                    )
                await asyncio.to_thread(stream.write, chunk)
            return _name(response.headers.get("Content-Disposition"), url)
    raise _unfetched(f"{url.host} redirects more than {_MAX_HOPS} times")


def _redirected(url: URL, location: str, settings: ServerSettings) -> URL:
    try:
        target = url.join(URL(location))
    except ValueError:
        raise _unfetched(f"{url.host} redirects to what is no URL") from None
    return _checked(str(target), settings.url_hosts, settings.private_hosts)


def _checked(text: str, allowed: Sequence[str], private: Collection[str]) -> URL:
    """A URL whose origin is allowed and whose address, if it is written as one, is open."""
    url = _parsed(text)
    if url is None:
        raise RequestError("this is no http or https URL of a host, or it holds a password")
    if _origin(url) not in {_origin(entry) for entry in map(_parsed, allowed) if entry is not None}:
        raise RequestError(
            f"{url.scheme}://{url.host}:{url.port} is not allowed",
            code=ErrorCode.ACCESS_DENIED,
            hint="the operator can allow it in server.url_hosts or server.vlm_hosts",
        )
    with contextlib.suppress(ValueError):  # the connector takes an address as it is, without asking the resolver
        _check_address(url.raw_host or "", ip_address(url.raw_host or ""), private)
    return url


def _parsed(text: str) -> URL | None:
    """The URL of a host; without a scheme it is ``https``."""
    try:
        url = URL(text if "://" in text else f"https://{text}")
        usable = url.scheme in ("http", "https") and url.host and url.port and text.isprintable() and " " not in text
        usable = usable and len(text) <= _MAX_URL
        return url if usable and url.user is None and url.password is None else None
    except ValueError:
        return None


def _origin(url: URL) -> tuple[str, str, int | None]:
    return url.scheme, (url.raw_host or "").rstrip("."), url.port


class _Resolver(AbstractResolver):
    """Resolves names to addresses that are open; the connection is made to exactly these."""

    def __init__(self, private: Collection[str]) -> None:
        self._private = private
        self._inner = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a host.

        :raises OSError: if there are none, or one is not open.
        """
        found = await self._inner.resolve(host, port, family)
        for entry in found:
            _check_address(host, ip_address(entry["host"].partition("%")[0]), self._private)
        return found

    async def close(self) -> None:
        """Nothing is kept."""


def _check_address(host: str, address: IPv4Address | IPv6Address, private: Collection[str]) -> None:
    if not _is_public(address) and not {str(address), host.rstrip(".")} & {entry.lower() for entry in private}:
        raise _NotPublicError


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is one of the open internet, also when it is an IPv4 address in the clothes of IPv6."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo and address.teredo[1])
        if address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        return _is_public(inner) if inner else address.is_global and address in _UNICAST
    return address.is_global and not address.is_multicast and address not in _PROTOCOL


def _name(disposition: str | None, url: URL) -> str:
    """What the server calls the document, else the last part of its address."""
    header = Message()
    if disposition and disposition.isprintable():
        header["Content-Disposition"] = disposition
    return header.get_filename() or unquote(url.path.rpartition("/")[2]) or "document"


def _unfetched(message: str) -> RequestError:
    return RequestError(message, code=ErrorCode.FILE_UNREADABLE, status=400)


@contextlib.contextmanager
def _as_problem(param: str) -> Iterator[None]:
    """What goes wrong with an address, as an error that tells nothing of the network behind the server."""
    try:
        yield
    except RequestError as exc:
        exc.param = param
        raise
    except (aiohttp.ClientError, OSError) as exc:
        cause = getattr(exc, "os_error", exc)
        if isinstance(cause, _NotPublicError):
            raise RequestError(
                "this host leads to an address that is not public",
                code=ErrorCode.ACCESS_DENIED,
                hint="the operator can open it in server.private_hosts",
                param=param,
            ) from None
        late = isinstance(exc, TimeoutError)
        problem = _unfetched("no answer in time" if late else "the host cannot be reached")
        problem.param = param
        raise problem from None
