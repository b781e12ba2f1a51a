;;; Emacs with eglot, in batch, as a client: prints what it gets.
;;; Environment: SERVER, EDITOR_FILES (tools/editors/emacs), FILE.
(add-to-list 'load-path (getenv "EDITOR_FILES"))
(require 'package)
(add-to-list 'package-directory-list "/usr/share/emacs/site-lisp/elpa")
(package-initialize)
(require 'eglot)
(require 'attn-mode)
(setq attn-server (getenv "SERVER")
      eglot-sync-connect 10
      eglot-send-changes-idle-time 0
      eglot-confirm-server-initiated-edits nil
      make-backup-files nil)

(defun out (&rest args) (princ (concat (mapconcat (lambda (x) (format "%s" x)) args " ") "\n")))

(defun wait (what test)
  (let ((end (+ (float-time) 10)))
    (while (and (not (funcall test)) (< (float-time) end))
      (accept-process-output nil 0.02))
    (unless (funcall test)
      (out "TIMEOUT" what)
      (kill-emacs 1))))

(defun at (text)
  (goto-char (point-min))
  (search-forward text)
  (goto-char (match-beginning 0)))

(find-file (getenv "FILE"))
(out "mode" major-mode)
(flymake-mode 1)
(apply #'eglot--connect (eglot--guess-contact))
(wait "managed" #'eglot-current-server)
(out "server" (plist-get (eglot--server-info (eglot-current-server)) :name))

(wait "diagnostics" (lambda () (flymake-start) (flymake-diagnostics)))
(dolist (d (flymake-diagnostics))
  (out "diagnostic" (line-number-at-pos (flymake-diagnostic-beg d))
       (car (split-string (flymake-diagnostic-text d) "\n"))))

(at "softmax(dot")
(let ((hover (jsonrpc-request (eglot-current-server) :textDocument/hover
                              (eglot--TextDocumentPositionParams))))
  (out "hover" (replace-regexp-in-string
                "\n" " " (plist-get (plist-get hover :contents) :value))))

(at "sum(k: p")
(forward-char 1)
(let* ((capf (eglot-completion-at-point))
       (all (all-completions "s" (nth 2 capf))))
  (out "complete" (and (member "softmax" (mapcar #'substring-no-properties all)) t)
       (and (member "sum" (mapcar #'substring-no-properties all)) t)))

(at "twice(s")
(eglot-rename "doubled")
(at "mod ")
(out "renamed" (buffer-substring (point) (line-end-position)))
(at "let (p")
(out "renamed" (buffer-substring (point) (line-end-position)))

(eglot-format-buffer)
(at "mod ")
(out "formatted" (buffer-substring (point) (line-end-position)))

(at " + misspeled")
(delete-region (point) (match-end 0))
(eglot--signal-textDocument/didChange)
(wait "no diagnostics"
      (lambda () (flymake-start) (accept-process-output nil 0.05)
        (null (flymake-diagnostics))))
(out "clean after the edit")

(at "softmax(dot")
(xref-find-definitions (symbol-name (symbol-at-point)))
(out "definition" (file-name-nondirectory (buffer-file-name))
     (line-number-at-pos)
     (buffer-substring (line-beginning-position) (line-end-position)))
(eglot-shutdown-all)
(out "stopped")
