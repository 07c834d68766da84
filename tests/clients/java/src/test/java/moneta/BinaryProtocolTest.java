package moneta;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import net.rubyeye.xmemcached.GetsResponse;
import net.rubyeye.xmemcached.MemcachedClient;
import net.rubyeye.xmemcached.MemcachedClientBuilder;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.rubyeye.xmemcached.auth.AuthInfo;
import net.rubyeye.xmemcached.command.BinaryCommandFactory;
import net.rubyeye.xmemcached.exception.MemcachedException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.DisabledIfEnvironmentVariable;
import org.junit.jupiter.api.io.TempDir;

/** xmemcached over the binary protocol, with SASL PLAIN. It knows no TLS. */
@DisabledIfEnvironmentVariable(named = "TLS_CA", matches = ".+")
class BinaryProtocolTest {
    private static final long TIMEOUT_MILLISECONDS = 30_000;
    private static final int FOR_EVER = 0;

    private TestServer server;
    private MemcachedClient client;

    @BeforeEach
    void start() throws Exception {
        server = new TestServer();
        client = connect(server.address(), null);
    }

    @AfterEach
    void stop() throws Exception {
        client.shutdown();
        server.close();
    }

    private static MemcachedClient connect(InetSocketAddress address, AuthInfo user) throws Exception {
        MemcachedClientBuilder builder = new XMemcachedClientBuilder(List.of(address));
        builder.setCommandFactory(new BinaryCommandFactory());
        builder.setOpTimeout(TIMEOUT_MILLISECONDS);
        if (user != null) {
            builder.setAuthInfoMap(Map.of(address, user));
        }
        return builder.build();
    }

    @Test
    void aValueComesBackAsItWasSet() throws Exception {
        assertTrue(client.set("key", FOR_EVER, "value"));
        assertEquals("value", client.get("key"));
        assertNull(client.get("missing"));
    }

    @Test
    void manyKeysComeBackAtOnce() throws Exception {
        Map<String, String> values = new HashMap<>();
        for (int number = 0; number < 500; number++) {
            values.put("key" + number, "value" + number);
            assertTrue(client.set("key" + number, FOR_EVER, "value" + number));
        }
        assertEquals(values, client.get(values.keySet()));
    }

    @Test
    void storingLooksAtWhatIsThere() throws Exception {
        assertFalse(client.replace("key", FOR_EVER, "x"));
        assertFalse(client.append("key", "x"));
        assertTrue(client.add("key", FOR_EVER, "b"));
        assertFalse(client.add("key", FOR_EVER, "x"));
        assertTrue(client.append("key", "c"));
        assertTrue(client.prepend("key", "a"));
        assertEquals("abc", client.get("key"));
        assertTrue(client.delete("key"));
        assertFalse(client.delete("key"));
    }

    @Test
    void casNoticesAnotherWriter() throws Exception {
        assertTrue(client.set("key", FOR_EVER, "1"));
        GetsResponse<String> read = client.gets("key");
        assertEquals("1", read.getValue());
        assertTrue(client.cas("key", FOR_EVER, "2", read.getCas()));
        assertFalse(client.cas("key", FOR_EVER, "3", read.getCas()));
        assertEquals("2", client.get("key"));
    }

    @Test
    void countersAreMadeAndCounted() throws Exception {
        assertEquals(10, client.incr("count", 5, 10));
        assertEquals(15, client.incr("count", 5, 10));
        assertEquals(0, client.decr("count", 20, 0));
    }

    @Test
    void itemsExpireAndTouchKeepsThem() throws Exception {
        boolean touched = false;
        // A second that ends in between may end the item, too.
        for (int attempt = 0; attempt < 100 && !touched; attempt++) {
            assertTrue(client.set("touched", 1, "x"));
            touched = client.touch("touched", 1000);
        }
        assertTrue(touched);
        // Stored later, it expires no sooner than the other one would have.
        assertTrue(client.set("short", 1, "x"));
        for (int attempt = 0; attempt < 200 && client.get("short") != null; attempt++) {
            Thread.sleep(100);
        }
        assertNull(client.get("short"));
        assertEquals("x", client.getAndTouch("touched", 1000));
    }

    @Test
    void largeValuesComeBack() throws Exception {
        byte[] large = new byte[1_000_000];
        for (int place = 0; place < large.length; place++) {
            large[place] = (byte) (place % 251);
        }
        assertTrue(client.set("large", FOR_EVER, large));
        assertArrayEquals(large, client.<byte[]>get("large"));
    }

    @Test
    void flushingRemovesEverything() throws Exception {
        assertTrue(client.set("key", FOR_EVER, "x"));
        client.flushAll();
        assertNull(client.get("key"));
    }

    @Test
    void statisticsAreThere() throws Exception {
        Map<String, String> stats = client.getStats().get(server.address());
        for (String name : List.of("pid", "version", "curr_items", "cmd_get")) {
            assertTrue(stats.containsKey(name), name);
        }
    }

    @Test
    void saslPlainLetsAUserIn(@TempDir Path folder) throws Exception {
        assumeFalse(TestServer.isMemcached(), "its users are the machine's own SASL database");
        Path users = folder.resolve("users");
        Files.writeString(users, "bob:builder\n");
        try (TestServer guarded = new TestServer("-S", "-Y", users.toString())) {
            MemcachedClient known = connect(guarded.address(), AuthInfo.plain("bob", "builder"));
            setOnceLoggedIn(known);
            assertEquals("x", known.get("key"));
            known.shutdown();

            MemcachedClient stranger = connect(guarded.address(), null);
            stranger.setOpTimeout(2_000);
            assertThrows(Exception.class, () -> stranger.set("key", FOR_EVER, "y"));
            stranger.shutdown();
        }
    }

    /** xmemcached logs in behind its caller's back, so the first commands may come too early. */
    private static void setOnceLoggedIn(MemcachedClient client) throws Exception {
        for (int attempt = 1; ; attempt++) {
            try {
                assertTrue(client.set("key", FOR_EVER, "x"));
                return;
            } catch (MemcachedException notYet) {
                if (attempt == 200) {
                    throw notYet;
                }
                Thread.sleep(100);
            }
        }
    }
}
