package rekappa;

import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;

/**
 * What every session of Spark comes to need, made ready in a thread of its own while Spark's context starts, which needs
 * none of it: the functions of Spark's machine learning alone, which each session registers, take most of a second.
 *
 * Compiled by the compiler that Spark brings, which knows neither lambdas nor type inference.
 */
public final class Ahead extends Thread {
    private static final String[] CLASSES = {
        "org.apache.spark.sql.ml.InternalFunctionRegistration$",
        "org.apache.spark.SparkThrowableHelper$",
        "org.apache.spark.sql.catalyst.analysis.FunctionRegistry$",
    };
    /** A parser learns its grammar by what it reads: something of what jobs are made of. */
    private static final String EXPRESSION =
        "a.id = b.id AND b.at >= a.at AND b.at BETWEEN a.at AND a.at + INTERVAL 10 MINUTES OR coalesce(a.x, 'y') > 1";

    private Ahead() {
        super("rekappa-ahead");
        this.setDaemon(true);
    }

    /** Begin. Before a session is made it must be waited for: two threads may not make the same classes ready at once. */
    public static Ahead begin() {
        Ahead ahead = new Ahead();
        ahead.start();
        return ahead;
    }

    public void run() {
        try {
            for (int at = 0; at < CLASSES.length; at++) {
                Class.forName(CLASSES[at]);
            }
            CatalystSqlParser$.MODULE$.parseExpression(EXPRESSION);
        } catch (Throwable error) {
            // The session comes to the same place and says what is wrong.
        }
    }
}
