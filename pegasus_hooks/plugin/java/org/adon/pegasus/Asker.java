package org.adon.pegasus;

import java.io.BufferedWriter;
import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * Starts the process that answers, talks to it, and ends it.
 *
 * <p>Its three streams are served by three threads, so that neither side can wait for the other
 * for ever; the planner's own thread only waits for the result, and no longer than the limit.
 */
final class Asker {

    /** What the process noted on its standard error: first lines in full, then the rest unread. */
    static final int MOST_NOTES = 20;

    /** On a busy machine, until all that a process has said is read, or it is seen to have ended. */
    private static final int ENDS_MS = 10000;

    private static final int LOOK_MS = 10;

    private final List<String> command;
    private final double limitSeconds;
    private final List<String> notes = new ArrayList<String>();
    private Refusal shortfall;
    private volatile boolean answered;

    Asker(List<String> command, double limitSeconds) {
        this.command = command;
        this.limitSeconds = limitSeconds;
    }

    /**
     * Asks where the jobs of {@code work} go. A first mapping counts where no better one follows in
     * time; {@link #shortfall} then says why.
     *
     * @throws Refusal where there is no whole mapping within the limit
     */
    Answer.Mapping ask(Work work, String config) throws Refusal {
        Answer answer = new Answer(work.tasks);
        Process process = start();
        Thread ender = new Thread(() -> Ending.kill(process));
        try {
            Runtime.getRuntime().addShutdownHook(ender);
            daemon(() -> send(work, config, process));
            Thread noter = daemon(() -> note(process));
            BlockingQueue<Object> result = new LinkedBlockingQueue<Object>();
            daemon(() -> result.add(receive(answer, process)));
            Object found = result.poll((long) (limitSeconds * 1e3), TimeUnit.MILLISECONDS);
            shortfall = shortfall(found, answer, noter, process);
            if (shortfall != null && answer.latest() == null) {
                throw shortfall;
            }
            answered = true;
            noter.join(ENDS_MS); // what it noted before its last line is soon read
            return answer.latest();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new Refusal("interrupted");
        } finally {
            Ending.kill(process);
            try {
                Runtime.getRuntime().removeShutdownHook(ender);
            } catch (IllegalStateException error) {
                // The machine is going down, and the process with it.
            }
        }
    }

    /** Why the answer was not taken to its end; null where it was. */
    Refusal shortfall() {
        return shortfall;
    }

    private Refusal shortfall(Object found, Answer answer, Thread noter, Process process)
            throws InterruptedException {
        if (found == null) {
            return new Refusal("no answer within " + Words.time(limitSeconds) + " ("
                    + AdonSiteSelector.TIMEOUT_PROPERTY + ")");
        }
        if (found instanceof Refusal) {
            return (Refusal) found;
        }
        if (answer.latest() != null && answer.latest().last) {
            return null;
        }
        noter.join(ENDS_MS);
        return new Refusal(ended(process) + " after " + answer.state() + lastNote());
    }

    private Process start() throws Refusal {
        try {
            return new ProcessBuilder(command).start();
        } catch (IOException error) {
            throw new Refusal("it cannot be started: " + Words.line(error.getMessage()));
        }
    }

    /** What it noted, one line each. */
    List<String> notes() {
        synchronized (notes) {
            return new ArrayList<String>(notes);
        }
    }

    private static Thread daemon(Runnable body) {
        Thread thread = new Thread(body, "adon-site-selector");
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private void send(Work work, String config, Process process) {
        try {
            Writer out = new BufferedWriter(
                    new OutputStreamWriter(process.getOutputStream(), StandardCharsets.UTF_8),
                    1 << 16);
            try {
                RequestWriter.write(work, config, limitSeconds, out);
            } finally {
                out.close();
            }
        } catch (IOException error) {
            // It stopped reading. Whether it has an answer all the same, its output tells.
        }
    }

    /** A Refusal, or anything else where the stream ended or the answer is complete. */
    private static Object receive(Answer answer, Process process) {
        try {
            Lines lines = new Lines(process.getInputStream());
            for (String line = lines.next(); line != null; line = lines.next()) {
                if (answer.line(line)) {
                    break;
                }
            }
            return answer;
        } catch (Refusal refusal) {
            return refusal;
        } catch (IOException error) {
            return new Refusal("its answer cannot be read: " + Words.line(error.getMessage()));
        }
    }

    private void note(Process process) {
        try {
            Lines lines = new Lines(untilAnswered(process));
            for (String line = lines.next(); line != null; line = lines.next()) {
                String said = Words.line(line);
                synchronized (notes) {
                    if (!said.isEmpty() && notes.size() < MOST_NOTES) {
                        notes.add(said);
                    }
                }
            }
        } catch (IOException error) {
            // Notes are not worth a failure.
        }
    }

    /** Its standard error, to where it is empty after the answer or the end: others may hold it. */
    private InputStream untilAnswered(Process process) {
        InputStream in = process.getErrorStream();
        return new FilterInputStream(in) {
            @Override
            public int read(byte[] bytes) throws IOException {
                boolean over = answered || !process.isAlive();
                while (in.available() == 0) {
                    if (over) {
                        return -1;
                    }
                    try {
                        Thread.sleep(LOOK_MS);
                    } catch (InterruptedException error) {
                        throw new IOException(error);
                    }
                    over = answered || !process.isAlive();
                }
                return in.read(bytes);
            }
        };
    }

    private static String ended(Process process) throws InterruptedException {
        for (int i = 0; i < ENDS_MS / LOOK_MS; i++) { // its last stream is closed: it is about to end
            try {
                return "it ended with exit status " + process.exitValue();
            } catch (IllegalThreadStateException error) {
                Thread.sleep(LOOK_MS);
            }
        }
        return "it closed its output";
    }

    private String lastNote() {
        List<String> said = notes();
        return said.isEmpty() ? "" : ": " + said.get(said.size() - 1);
    }
}
