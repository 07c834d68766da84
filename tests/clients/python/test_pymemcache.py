"""What users of pymemcache do, against a real server: the text and the meta protocol of a client they know."""

import ssl
import threading
import time
import unittest

from pymemcache.client import base, hash as hashed
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError, MemcacheUnknownCommandError
from pymemcache import serde

from server import PROTECTED, Client, PooledClient, Server, is_over_tls, is_proxy


class HashClient(hashed.HashClient):
    client_class = Client


class Pymemcache(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)

    def setUp(self):
        self.client = Client(("127.0.0.1", self.server.port), default_noreply=False, timeout=30, **PROTECTED)
        self.client.flush_all()
        self.addCleanup(self.client.close)

    def test_a_value_comes_back_as_it_was_set(self):
        self.assertTrue(self.client.set("key", b"value\r\nwith a line end"))
        self.assertEqual(self.client.get("key"), b"value\r\nwith a line end")
        self.assertIsNone(self.client.get("missing"))
        self.assertEqual(self.client.get("missing", "default"), "default")

    def test_many_keys_at_once(self):
        values = {f"key{number}": str(number).encode() for number in range(1000)}
        self.assertEqual(self.client.set_many(values), [])
        self.assertEqual(self.client.get_many(list(values) + ["missing"]), values)
        self.assertTrue(self.client.delete_many(list(values)))
        self.assertEqual(self.client.get_many(values), {})

    def test_storing_commands_look_at_what_is_there(self):
        self.assertFalse(self.client.replace("key", b"1"))
        self.assertFalse(self.client.append("key", b"1"))
        self.assertTrue(self.client.add("key", b"1"))
        self.assertFalse(self.client.add("key", b"2"))
        self.assertTrue(self.client.replace("key", b"b"))
        self.assertTrue(self.client.append("key", b"c"))
        self.assertTrue(self.client.prepend("key", b"a"))
        self.assertEqual(self.client.get("key"), b"abc")

    def test_cas_notices_another_writer(self):
        self.client.set("key", b"1")
        value, cas = self.client.gets("key")
        self.assertEqual(value, b"1")
        self.assertTrue(self.client.cas("key", b"2", cas))
        self.assertFalse(self.client.cas("key", b"3", cas))
        self.assertIsNone(self.client.cas("missing", b"3", cas))
        self.assertEqual(self.client.get("key"), b"2")

    def test_counting(self):
        self.assertIsNone(self.client.incr("count", 1))
        self.client.set("count", b"10")
        self.assertEqual(self.client.incr("count", 5), 15)
        self.assertEqual(self.client.decr("count", 20), 0)

    def test_items_expire_and_touch_keeps_them(self):
        # A second that ends in between may end the item, too.
        for _ in range(100):
            self.client.set("touched", b"x", expire=1)
            if self.client.touch("touched", expire=1000):
                break
        # Stored later, it expires no sooner than the other one would have.
        self.client.set("short", b"x", expire=1)
        self.assertFalse(self.client.touch("missing", expire=1))
        for _ in range(200):
            if self.client.get("short") is None:
                break
            time.sleep(0.1)
        self.assertIsNone(self.client.get("short"))
        self.assertEqual(self.client.get("touched"), b"x")

    def test_deleting(self):
        self.client.set("key", b"x")
        self.assertTrue(self.client.delete("key"))
        self.assertFalse(self.client.delete("key"))

    def test_large_values_and_the_limit(self):
        large = bytes(range(256)) * 4000
        self.assertTrue(self.client.set("large", large))
        self.assertEqual(self.client.get("large"), large)
        with self.assertRaises(MemcacheServerError):
            self.client.set("large", b"x" * (2 << 20))
        self.assertIsNone(self.client.get("large"))

    def test_commands_without_replies_take_effect_in_order(self):
        for number in range(500):
            self.client.set(f"quiet{number}", b"x", noreply=True)
        self.client.delete("quiet0", noreply=True)
        self.client.set("count", b"0", noreply=True)
        self.client.incr("count", 3, noreply=True)
        self.assertIsNone(self.client.get("quiet0"))
        self.assertEqual(self.client.get("quiet499"), b"x")
        self.assertEqual(self.client.get("count"), b"3")

    def test_python_values_through_flags(self):
        client = Client(("127.0.0.1", self.server.port), serde=serde.pickle_serde, timeout=30, **PROTECTED)
        self.addCleanup(client.close)
        client.set("object", {"list": [1, 2.5, None]}, noreply=False)
        client.set("number", 12, noreply=False)
        self.assertEqual(client.get("object"), {"list": [1, 2.5, None]})
        self.assertEqual(client.get("number"), 12)

    def test_statistics_and_version(self):
        self.client.set("key", b"x")
        stats = self.client.stats()
        # A proxy holds no items.
        self.assertGreaterEqual(stats[b"curr_items"], 0 if is_proxy() else 1)
        self.assertIn(b"maxconns", self.client.stats("settings"))
        self.assertTrue(self.client.version())

    def test_meta_commands_by_hand(self):
        self.assertEqual(self.client.raw_command("ms raw 2 T0\r\nhi"), b"HD")
        self.assertEqual(self.client.raw_command("mg raw s t"), b"HD s2 t-1")
        with self.assertRaises(MemcacheUnknownCommandError):
            self.client._misc_cmd([b"bogus\r\n"], b"bogus", False)

    def test_threads_share_a_pool(self):
        pool = PooledClient(("127.0.0.1", self.server.port), max_pool_size=8, timeout=30, **PROTECTED)
        pool.set("count", b"0", noreply=False)
        workers = [threading.Thread(target=lambda: [pool.incr("count", 1) for _ in range(200)]) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.assertEqual(pool.get("count"), b"1600")
        pool.close()

    def test_keys_are_spread_over_two_servers(self):
        with Server() as other:
            client = HashClient([("127.0.0.1", self.server.port), ("127.0.0.1", other.port)], timeout=30, **PROTECTED)
            values = {f"key{number}": str(number).encode() for number in range(200)}
            client.set_many(values, noreply=False)
            self.assertEqual(client.get_many(list(values)), values)
            held = self.client.get_many(list(values))
            self.assertTrue(0 < len(held) < len(values))
            client.close()

    @unittest.skipUnless(is_over_tls(), "nothing protects the server")
    def test_strangers_and_those_who_believe_nobody_are_refused(self):
        stranger = base.Client(("127.0.0.1", self.server.port), timeout=30, **PROTECTED)
        self.addCleanup(stranger.close)
        with self.assertRaises(MemcacheClientError):
            stranger.get("key")
        unbelieving = Client(("127.0.0.1", self.server.port), timeout=30, tls_context=ssl.create_default_context())
        with self.assertRaises(ssl.SSLCertVerificationError):
            unbelieving.get("key")


if __name__ == "__main__":
    unittest.main()
