package moneta;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A server for the tests: the binary that MONETA_BIN names. It ends when it is closed. */
final class TestServer implements AutoCloseable {
    private static final long START_NANOSECONDS = TimeUnit.SECONDS.toNanos(30);

    private final Process process;
    private final InetSocketAddress address;

    TestServer(String... arguments) throws IOException, InterruptedException {
        int port = freePort();
        // By name: xmemcached finds the login of a server by its host name, which it asks the system for.
        address = new InetSocketAddress("localhost", port);
        List<String> command = new ArrayList<>(List.of(program()));
        command.addAll(isMemcached() ? List.of("-u", "root", "-U", "0") : List.of("serve", "--admin", "off"));
        command.addAll(List.of("-p", Integer.toString(port), "-l", "127.0.0.1"));
        command.addAll(List.of(arguments));
        process = new ProcessBuilder(command)
                .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        waitUntilItListens();
    }

    /** Whether the tests run against memcached, to check the tests themselves. */
    static boolean isMemcached() {
        return Path.of(program()).getFileName().toString().equals("memcached");
    }

    InetSocketAddress address() {
        return address;
    }

    @Override
    public void close() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    private static String program() {
        String program = System.getenv("MONETA_BIN");
        if (program == null) {
            throw new IllegalStateException("MONETA_BIN names no server");
        }
        return program;
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    private void waitUntilItListens() throws InterruptedException {
        long start = System.nanoTime();
        while (process.isAlive() && System.nanoTime() - start < START_NANOSECONDS) {
            try (Socket socket = new Socket()) {
                socket.connect(address);
                return;
            } catch (IOException notYet) {
                Thread.sleep(10);
            }
        }
        close();
        throw new IllegalStateException("the server did not start");
    }
}
