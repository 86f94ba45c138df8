package org.adon.pegasus;

import java.io.IOException;
import java.io.Writer;
import java.util.Map;

/** Writes JSON as it comes, so that a large workflow is never in memory as text. */
final class Json {

    private final Writer out;
    private boolean first = true;

    Json(Writer out) {
        this.out = out;
    }

    Json open(char bracket) throws IOException {
        separate();
        out.write(bracket);
        first = true;
        return this;
    }

    Json open(String key, char bracket) throws IOException {
        key(key);
        out.write(bracket);
        first = true;
        return this;
    }

    Json close(char bracket) throws IOException {
        out.write(bracket);
        first = false;
        return this;
    }

    Json item(String value) throws IOException {
        separate();
        quote(value);
        return this;
    }

    /** A pair, left out where the value is null. */
    Json pair(String key, String value) throws IOException {
        if (value != null) {
            key(key);
            quote(value);
        }
        return this;
    }

    Json pair(String key, long value) throws IOException {
        key(key);
        out.write(Long.toString(value));
        first = false;
        return this;
    }

    Json pair(String key, double value) throws IOException {
        key(key);
        out.write(Double.toString(value));
        first = false;
        return this;
    }

    Json pair(String key, boolean value) throws IOException {
        key(key);
        out.write(Boolean.toString(value));
        first = false;
        return this;
    }

    /** A list of numbers, left out where it is empty. */
    Json pair(String key, int[] values) throws IOException {
        if (values.length > 0) {
            open(key, '[');
            for (int value : values) {
                separate();
                out.write(Integer.toString(value));
            }
            close(']');
        }
        return this;
    }

    Json pair(String key, Iterable<String> values) throws IOException {
        open(key, '[');
        for (String value : values) {
            item(value);
        }
        return close(']');
    }

    Json pair(String key, Map<String, String> values) throws IOException {
        if (!values.isEmpty()) {
            open(key, '{');
            for (Map.Entry<String, String> entry : values.entrySet()) {
                pair(entry.getKey(), entry.getValue());
            }
            close('}');
        }
        return this;
    }

    private void key(String key) throws IOException {
        separate();
        quote(key);
        out.write(':');
        first = true;
    }

    private void separate() throws IOException {
        if (!first) {
            out.write(',');
        }
        first = false;
    }

    private void quote(String text) throws IOException {
        out.write('"');
        int plain = 0; // where the part begins that can be written as it is
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\' || c < ' ' || c > '~') {
                out.write(text, plain, i - plain);
                plain = i + 1;
                out.write(c == '"' || c == '\\' ? "\\" + c : String.format("\\u%04x", (int) c));
            }
        }
        out.write(text, plain, text.length() - plain);
        out.write('"');
        first = false;
    }
}
