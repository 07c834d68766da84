package moneta;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.netflix.appinfo.ApplicationInfoManager;
import com.netflix.appinfo.DataCenterInfo;
import com.netflix.appinfo.InstanceInfo;
import com.netflix.appinfo.InstanceInfo.InstanceStatus;
import com.netflix.appinfo.LeaseInfo;
import com.netflix.appinfo.MyDataCenterInstanceConfig;
import com.netflix.discovery.DefaultEurekaClientConfig;
import com.netflix.discovery.DiscoveryClient;
import com.netflix.discovery.shared.Application;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Netflix's own client against `moneta control --eureka`. */
class EurekaClientTest {
    private static final long PATIENCE = TimeUnit.SECONDS.toNanos(60);

    @TempDir
    Path data;

    private Process process;
    private int control;
    private int eureka;
    /** What stands before the host in the URL of the server. */
    private String user = "";

    @BeforeEach
    void start() throws Exception {
        begin();
    }

    private void begin(String... more) throws Exception {
        control = freePort();
        eureka = freePort();
        List<String> command = new ArrayList<>(List.of(System.getenv("MONETA_BIN"), "control", "--data",
                data.toString(), "--listen", "127.0.0.1:" + control, "--eureka", "127.0.0.1:" + eureka));
        command.addAll(List.of(more));
        process = new ProcessBuilder(command)
                .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        until("it answers", () -> process.isAlive() && listens(eureka));
    }

    @AfterEach
    void end() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    private static boolean listens(int port) {
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
            return true;
        } catch (IOException notYet) {
            return false;
        }
    }

    private static void until(String what, BooleanSupplier holds) throws InterruptedException {
        long begun = System.nanoTime();
        while (!holds.getAsBoolean()) {
            assertTrue(System.nanoTime() - begun < PATIENCE, what);
            Thread.sleep(50);
        }
    }

    /** A client that registers under this name, and asks for everything each second. */
    private DiscoveryClient client(String app, String id, int port) {
        MyDataCenterInstanceConfig config = new MyDataCenterInstanceConfig();
        InstanceInfo info = InstanceInfo.Builder.newBuilder()
                .setAppName(app)
                .setInstanceId(id)
                .setHostName("host-" + id)
                .setIPAddr("127.0.0.1")
                .setPort(port)
                .setVIPAddress(app.toLowerCase())
                .setDataCenterInfo((DataCenterInfo) () -> DataCenterInfo.Name.MyOwn)
                .setLeaseInfo(LeaseInfo.Builder.newBuilder().setRenewalIntervalInSecs(1).setDurationInSecs(3).build())
                .setMetadata(Map.of("color", "blue"))
                .setStatus(InstanceStatus.UP)
                .build();
        DefaultEurekaClientConfig client = new DefaultEurekaClientConfig() {
            @Override
            public List<String> getEurekaServerServiceUrls(String zone) {
                return List.of("http://" + user + "127.0.0.1:" + eureka + "/eureka/v2/");
            }

            @Override
            public int getRegistryFetchIntervalSeconds() {
                return 1;
            }

            @Override
            public int getInitialInstanceInfoReplicationIntervalSeconds() {
                return 0;
            }

            @Override
            public int getInstanceInfoReplicationIntervalSeconds() {
                return 1;
            }

            @Override
            public boolean shouldUnregisterOnShutdown() {
                return true;
            }
        };
        return new DiscoveryClient(new ApplicationInfoManager(config, info), client);
    }

    @Test
    void clientsRegisterRenewFindAndLeave() throws Exception {
        DiscoveryClient one = client("ORDERS", "i-1", 8080);
        DiscoveryClient other = client("ORDERS", "i-2", 8081);
        try {
            until("both find both", () -> size(one) == 2 && size(other) == 2);
            InstanceInfo found = one.getApplication("ORDERS").getByInstanceId("i-2");
            assertEquals(8081, found.getPort());
            assertEquals("blue", found.getMetadata().get("color"));
            assertEquals(2, one.getInstancesByVipAddress("orders", false).size());
            // The hash that the client works out of what it has is the one it was told, also over deltas.
            assertEquals("UP_2_", one.getApplications().getReconcileHashCode());
            assertEquals("UP_2_", told());

            one.getApplicationInfoManager().setInstanceStatus(InstanceStatus.DOWN);
            until("the other sees it", () -> "DOWN_1_UP_1_".equals(other.getApplications().getReconcileHashCode()));
            assertEquals("DOWN_1_UP_1_", told());
        } finally {
            other.shutdown();
            until("one sees that it left", () -> size(one) == 1);
            one.shutdown();
        }
    }

    /** The hash that the server tells. */
    private String told() throws Exception {
        URI place = URI.create("http://127.0.0.1:" + eureka + "/eureka/v2/apps");
        HttpRequest request = HttpRequest.newBuilder(place).header("Accept", "application/json").build();
        String all = HttpClient.newHttpClient().send(request, BodyHandlers.ofString()).body();
        Matcher hash = Pattern.compile("\"apps__hashcode\":\"([^\"]*)\"").matcher(all);
        assertTrue(hash.find(), all);
        return hash.group(1);
    }

    @Test
    void aClientIsTheUserThatItsUrlNames() throws Exception {
        end();
        Path users = data.resolve("users.toml");
        Process add = new ProcessBuilder(System.getenv("MONETA_BIN"), "user", "add", users.toString(), "orders",
                "--environment", "default", "--roles", "register,read", "--app", "ORDERS").start();
        String secret = new String(add.getInputStream().readAllBytes()).trim();
        assertEquals(0, add.waitFor());
        begin("--users", users.toString());
        DiscoveryClient stranger = client("ORDERS", "i-1", 8080);
        user = "orders:" + secret + "@";
        DiscoveryClient one = client("ORDERS", "i-2", 8081);
        try {
            until("it finds itself", () -> size(one) == 1);
            assertEquals(0, size(stranger));
        } finally {
            one.shutdown();
            stranger.shutdown();
        }
    }

    private static int size(DiscoveryClient client) {
        Application application = client.getApplication("ORDERS");
        // Only those that are up are kept, unless asked otherwise.
        return application == null ? 0 : application.getInstancesAsIsFromEureka().size();
    }

    @Test
    void nodesOfMonetaAreFoundAsEvcacheFindsThem() throws Exception {
        String record = "{\"kind\":\"node\",\"addresses\":{\"cache\":\"127.0.0.1:11311\"},\"zone\":\"us-east-1a\","
                + "\"replica\":\"group-a\",\"slot\":\"a0\",\"status\":\"UP\"}";
        URI place = URI.create("http://127.0.0.1:" + control + "/v1/default/instances/EVCACHE_APP/i-9");
        HttpRequest request = HttpRequest.newBuilder(place).PUT(BodyPublishers.ofString(record)).build();
        assertEquals(200, HttpClient.newHttpClient().send(request, BodyHandlers.ofString()).statusCode());
        DiscoveryClient client = client("READER", "i-1", 8080);
        try {
            until("it finds the node", () -> client.getApplication("EVCACHE_APP") != null);
            InstanceInfo node = client.getApplication("EVCACHE_APP").getByInstanceId("i-9");
            assertEquals("group-a", node.getASGName());
            assertEquals("11311", node.getMetadata().get("evcache.port"));
            assertEquals(DataCenterInfo.Name.Amazon, node.getDataCenterInfo().getName());
            var machine = (com.netflix.appinfo.AmazonInfo) node.getDataCenterInfo();
            assertEquals("us-east-1a", machine.get(com.netflix.appinfo.AmazonInfo.MetaDataKey.availabilityZone));
            assertNotNull(machine.get(com.netflix.appinfo.AmazonInfo.MetaDataKey.localIpv4));
        } finally {
            client.shutdown();
        }
    }
}
