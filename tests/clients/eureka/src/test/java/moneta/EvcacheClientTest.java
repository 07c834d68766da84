package moneta;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.netflix.appinfo.ApplicationInfoManager;
import com.netflix.appinfo.DataCenterInfo;
import com.netflix.appinfo.InstanceInfo;
import com.netflix.appinfo.MyDataCenterInstanceConfig;
import com.netflix.discovery.DefaultEurekaClientConfig;
import com.netflix.discovery.DiscoveryClient;
import com.netflix.evcache.EVCache;
import com.netflix.evcache.EVCacheLatch;
import com.netflix.evcache.connection.ConnectionFactoryProvider;
import com.netflix.evcache.pool.EVCacheClientPoolManager;
import java.io.IOException;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** EVCache's own client, which finds nodes of Moneta by the control plane's interface for Eureka, and sets and reads there. */
class EvcacheClientTest {
    private static final long PATIENCE = TimeUnit.SECONDS.toNanos(90);

    @TempDir
    Path folder;

    private final List<Process> processes = new ArrayList<>();

    @AfterEach
    void end() throws InterruptedException {
        for (Process process : processes) {
            process.destroyForcibly().waitFor();
        }
    }

    private void moneta(String... arguments) throws IOException {
        List<String> command = new ArrayList<>(List.of(System.getenv("MONETA_BIN")));
        command.addAll(List.of(arguments));
        processes.add(new ProcessBuilder(command)
                .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                .redirectError(ProcessBuilder.Redirect.DISCARD)
                .start());
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    private static void until(String what, BooleanSupplier holds) throws InterruptedException {
        long begun = System.nanoTime();
        while (!holds.getAsBoolean()) {
            assertTrue(System.nanoTime() - begun < PATIENCE, what);
            Thread.sleep(100);
        }
    }

    private static String get(int port, String path) {
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path)).build();
        try {
            return HttpClient.newHttpClient().send(request, BodyHandlers.ofString()).body();
        } catch (IOException | InterruptedException notYet) {
            return "";
        }
    }

    private static long items(int admin) {
        Matcher found = Pattern.compile("\"curr_items\"[^0-9]*([0-9]+)").matcher(get(admin, "/stats"));
        return found.find() ? Long.parseLong(found.group(1)) : -1;
    }

    @Test
    void itFindsNodesByEurekaAndSetsAndReadsThere() throws Exception {
        int control = freePort();
        int eureka = freePort();
        moneta("control", "--data", folder.resolve("control").toString(), "--listen", "127.0.0.1:" + control,
                "--eureka", "127.0.0.1:" + eureka);
        until("the control plane answers", () -> get(eureka, "/status").startsWith("STARTED"));
        List<Integer> admins = new ArrayList<>();
        // Two groups, as EVCache calls replicas, of one node each: a set goes to both.
        for (String zone : List.of("us-east-1a", "us-east-1b")) {
            int admin = freePort();
            admins.add(admin);
            moneta("serve", "--listen", "127.0.0.1", "-p", String.valueOf(freePort()), "--admin", "127.0.0.1:" + admin, "-m", "64",
                    "--control", "http://127.0.0.1:" + control, "--app", "EVCACHE_APP", "--zone", zone, "--replica", "group-" + zone,
                    "--slot", "s0", "--state-dir", folder.resolve(zone).toString());
        }
        until("both nodes are up", () -> get(eureka, "/eureka/apps/EVCACHE_APP").split("<status>UP</status>", -1).length == 3);
        InstanceInfo info = InstanceInfo.Builder.newBuilder()
                .setAppName("READER")
                .setInstanceId("i-1")
                .setHostName("reader")
                .setIPAddr("127.0.0.1")
                .setPort(8080)
                .setVIPAddress("reader")
                .setDataCenterInfo((DataCenterInfo) () -> DataCenterInfo.Name.MyOwn)
                .build();
        ApplicationInfoManager self = new ApplicationInfoManager(new MyDataCenterInstanceConfig(), info);
        DiscoveryClient discovery = new DiscoveryClient(self, new DefaultEurekaClientConfig() {
            @Override
            public List<String> getEurekaServerServiceUrls(String zone) {
                return List.of("http://127.0.0.1:" + eureka + "/eureka/v2/");
            }

            @Override
            public int getRegistryFetchIntervalSeconds() {
                return 1;
            }

            @Override
            public boolean shouldRegisterWithEureka() {
                return false;
            }
        });
        EVCacheClientPoolManager pools = new EVCacheClientPoolManager(self, discovery, ConnectionFactoryProvider::new);
        try {
            until("it has both nodes", () -> discovery.getApplication("EVCACHE_APP") != null
                    && discovery.getApplication("EVCACHE_APP").getInstances().size() == 2);
            pools.initEVCache("EVCACHE_APP");
            EVCache cache = new EVCache.Builder().setAppName("EVCACHE_APP").setCachePrefix("pre").build();
            until("a set reaches both groups", () -> {
                try {
                    EVCacheLatch latch = cache.set("key", "a value", null, 600, EVCacheLatch.Policy.ALL);
                    return latch.await(5, TimeUnit.SECONDS) && latch.getSuccessCount() == 2;
                } catch (Exception notYet) {
                    return false;
                }
            });
            assertEquals("a value", cache.<String>get("key"));
            assertNull(cache.<String>get("none"));
            for (int admin : admins) {
                assertEquals(1, items(admin), "each group has it");
            }
            for (var deleted : cache.delete("key")) {
                assertTrue(deleted.get(10, TimeUnit.SECONDS));
            }
            assertNull(cache.<String>get("key"));
        } finally {
            pools.shutdown();
            discovery.shutdown();
        }
    }
}
