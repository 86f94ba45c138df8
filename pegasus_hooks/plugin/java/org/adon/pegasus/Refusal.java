package org.adon.pegasus;

/** Why there is no answer from ADON; the message is one line for the log. */
final class Refusal extends Exception {

    private static final long serialVersionUID = 1L;

    Refusal(String message) {
        super(message);
    }
}
