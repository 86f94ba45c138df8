package org.adon.pegasus;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;

/** Lines of UTF-8 from a stream that may send anything; none is longer than a limit. */
final class Lines {

    static final int LONGEST = 1 << 16;

    private final InputStream in;
    private final byte[] buffer = new byte[1 << 16];
    private int at;
    private int end;

    Lines(InputStream in) {
        this.in = in;
    }

    /** The next line without its end, cut at the limit; null at the end of the stream. */
    String next() throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream(80);
        while (true) {
            if (at == end) {
                end = in.read(buffer);
                at = 0;
                if (end <= 0) {
                    end = 0;
                    return line.size() == 0 ? null : line.toString("UTF-8");
                }
            }
            byte b = buffer[at++];
            if (b == '\n') {
                return line.toString("UTF-8");
            }
            if (line.size() < LONGEST) {
                line.write(b);
            } else {
                return line.toString("UTF-8");
            }
        }
    }
}
