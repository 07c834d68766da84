package moneta;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.spotify.folsom.GetResult;
import com.spotify.folsom.MemcacheClient;
import com.spotify.folsom.MemcacheClientBuilder;
import com.spotify.folsom.MemcacheStatus;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.List;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** folsom over TLS and a log-in, by text and by binary protocol. xmemcached knows no TLS. */
@EnabledIfEnvironmentVariable(named = "TLS_CA", matches = ".+")
class TlsTest {
    private static final int FOR_EVER = 0;
    private static final long TIMEOUT_SECONDS = 30;
    /** How long a client that must not get in may try. */
    private static final long REFUSED_SECONDS = 2;

    private TestServer server;

    @BeforeEach
    void start() throws Exception {
        server = new TestServer();
    }

    @AfterEach
    void stop() throws Exception {
        server.close();
    }

    /** A client that believes the authority of the tests, or those of Java. */
    private MemcacheClient<String> connect(boolean binary, String secret, boolean believes) throws Exception {
        SSLContext context = believes ? believing(Path.of(System.getenv("TLS_CA"))) : SSLContext.getDefault();
        MemcacheClientBuilder<String> builder = MemcacheClientBuilder.newStringClient()
                .withAddress("localhost", server.address().getPort())
                .withRequestTimeoutMillis(TimeUnit.SECONDS.toMillis(TIMEOUT_SECONDS))
                .withSSLEngineFactory((host, port) -> {
                    SSLEngine engine = context.createSSLEngine(host, port);
                    engine.setUseClientMode(true);
                    SSLParameters parameters = engine.getSSLParameters();
                    parameters.setEndpointIdentificationAlgorithm("HTTPS");
                    engine.setSSLParameters(parameters);
                    return engine;
                });
        if (secret != null) {
            builder.withUsernamePassword(System.getenv("LOGIN_USER"), secret);
        }
        return binary ? builder.connectBinary() : builder.connectAscii();
    }

    private static SSLContext believing(Path authority) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream text = Files.newInputStream(authority)) {
            store.setCertificateEntry("tests", CertificateFactory.getInstance("X.509").generateCertificate(text));
        }
        TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context;
    }

    private static <T> T answer(CompletionStage<T> stage) throws Exception {
        return stage.toCompletableFuture().get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void whoHasLoggedInIsServed(boolean binary) throws Exception {
        MemcacheClient<String> client = connect(binary, System.getenv("LOGIN_SECRET"), true);
        client.awaitConnected(TIMEOUT_SECONDS, TimeUnit.SECONDS);
        assertEquals(MemcacheStatus.OK, answer(client.set("key", "value", FOR_EVER)));
        assertEquals("value", answer(client.get("key")));
        assertNull(answer(client.get("missing")));
        assertEquals(MemcacheStatus.ITEM_NOT_STORED, notStored(answer(client.add("key", "x", FOR_EVER))));
        GetResult<String> read = answer(client.casGet("key"));
        assertEquals(MemcacheStatus.OK, answer(client.set("key", "other", FOR_EVER, read.getCas())));
        assertEquals(MemcacheStatus.KEY_EXISTS, answer(client.set("key", "late", FOR_EVER, read.getCas())));
        List<String> keys = IntStream.range(0, 500).mapToObj(number -> "key" + number).toList();
        for (String key : keys) {
            assertEquals(MemcacheStatus.OK, answer(client.set(key, key, FOR_EVER)));
        }
        assertEquals(keys, answer(client.get(keys)));
        String large = "0123456789".repeat(100_000);
        assertEquals(MemcacheStatus.OK, answer(client.set("large", large, FOR_EVER)));
        assertEquals(large, answer(client.get("large")));
        assertEquals(MemcacheStatus.OK, answer(client.delete("key")));
        assertNull(answer(client.get("key")));
        client.shutdown();
    }

    /** The protocols have different words for it. */
    private static MemcacheStatus notStored(MemcacheStatus status) {
        return status == MemcacheStatus.KEY_EXISTS ? MemcacheStatus.ITEM_NOT_STORED : status;
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void strangersAndThoseWhoBelieveNobodyAreRefused(boolean binary) throws Exception {
        MemcacheClient<String> stranger = connect(binary, null, true);
        MemcacheClient<String> impostor = connect(binary, "wrong", true);
        MemcacheClient<String> unbelieving = connect(binary, System.getenv("LOGIN_SECRET"), false);
        for (MemcacheClient<String> refused : List.of(stranger, impostor, unbelieving)) {
            Exception why = assertThrows(Exception.class, () -> refused.awaitConnected(REFUSED_SECONDS, TimeUnit.SECONDS));
            assertEquals(false, refused.isConnected(), String.valueOf(why));
            refused.shutdown();
        }
    }
}
