package rekappa;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.api.java.UDF0;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Lets the rows of one task pass, each when the driver's bucket of tokens allows it (rekappa/tokens.py has the other
 * side). Every task has a copy of its own. It asks for some rows at a time, and gives back what it did not use.
 *
 * Compiled by the compiler that Spark brings, which knows neither lambdas nor type inference.
 */
public final class Turnstile implements UDF0<Boolean>, TaskCompletionListener {
    private final String host;
    private final int port;
    private final byte[] secret;
    private final int bucket;
    private final int step;
    private transient Socket socket;
    private transient DataOutputStream asking;
    private transient DataInputStream answers;
    private transient int left;

    public Turnstile(String host, int port, byte[] secret, int bucket, int step) {
        this.host = host;
        this.port = port;
        this.secret = secret;
        this.bucket = bucket;
        this.step = step;
    }

    public Boolean call() throws Exception {
        if (this.left == 0) {
            double wait = this.ask(this.step);
            this.left = this.step;
            long nanos = (long) (wait * 1e9);
            Thread.sleep(nanos / 1000000L, (int) (nanos % 1000000L));
        }
        this.left = this.left - 1;
        return Boolean.TRUE;
    }

    public void onTaskCompletion(TaskContext context) {
        try {
            if (this.left > 0) {
                this.ask(-this.left);
            }
            this.socket.close();
        } catch (IOException gone) {
            // The run is over: nobody is left to take anything back.
        }
    }

    private double ask(int rows) throws IOException {
        try {
            if (this.socket == null) {
                this.socket = new Socket();
                this.socket.connect(new InetSocketAddress(this.host, this.port), 30000);
                this.socket.setTcpNoDelay(true);
                this.asking = new DataOutputStream(this.socket.getOutputStream());
                this.answers = new DataInputStream(this.socket.getInputStream());
                TaskContext.get().addTaskCompletionListener((TaskCompletionListener) this);
            }
            byte[] request = new byte[24];
            System.arraycopy(this.secret, 0, request, 0, 16);
            java.nio.ByteBuffer.wrap(request, 16, 8).putInt(this.bucket).putInt(rows);
            this.asking.write(request);
            this.asking.flush();
            return this.answers.readDouble();
        } catch (IOException error) {
            throw new IOException(
                "Cannot ask the rate limiter at " + this.host + ":" + this.port
                + ": tasks must be able to reach the driver (spark.driver.host, firewall)", error);
        }
    }
}
